# SPDX-License-Identifier: Apache-2.0
# The two programs, which do not depend on how kvmem::kvmem was found.
set(CMAKE_C_STANDARD 11)
set(CMAKE_CXX_STANDARD 17)
add_compile_options(-Wall -Wextra -Wpedantic -Werror)

add_executable(consumer_c "${CMAKE_CURRENT_LIST_DIR}/consumer.c")
target_link_libraries(consumer_c PRIVATE kvmem::kvmem)
add_executable(consumer_cpp "${CMAKE_CURRENT_LIST_DIR}/consumer.cpp")
target_link_libraries(consumer_cpp PRIVATE kvmem::kvmem)
