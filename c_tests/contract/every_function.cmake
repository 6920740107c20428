# SPDX-License-Identifier: Apache-2.0
# Fails when a function of kvmem.h is not called by the tests of a folder, so that a new one cannot be forgotten.
#   cmake -DHEADER=kvmem.h -DSOURCES_DIRECTORY=contract [-DSOURCES=*_test.c] -P every_function.cmake

# The text of a C file without its comments.
function(read_code path result)
    file(READ "${path}" code)
    string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" " " code "${code}")
    string(REGEX REPLACE "//[^\n]*" " " code "${code}")
    set(${result} "${code}" PARENT_SCOPE)
endfunction()

read_code("${HEADER}" header)
string(REGEX MATCHALL "kvmem_[a-z0-9_]+[ \n]*\\(" functions "${header}")
list(TRANSFORM functions REPLACE "[ \n]*\\($" "")
list(REMOVE_DUPLICATES functions)
list(LENGTH functions count)
if(count LESS 50)
    message(FATAL_ERROR "only ${count} functions found in ${HEADER}: is it the header?")
endif()

if(NOT SOURCES)
    set(SOURCES "*_test.c")
endif()
file(GLOB sources "${SOURCES_DIRECTORY}/${SOURCES}")
set(tests "")
foreach(source IN LISTS sources)
    read_code("${source}" code)
    string(APPEND tests "${code}")
endforeach()

set(forgotten "")
foreach(function IN LISTS functions)
    if(NOT tests MATCHES "[^a-z0-9_]${function}[,(]")
        list(APPEND forgotten "${function}")
    endif()
endforeach()
if(forgotten)
    list(JOIN forgotten ", " names)
    message(FATAL_ERROR "no file of ${SOURCES_DIRECTORY} calls ${names}")
endif()
message(STATUS "all ${count} functions are called in ${SOURCES_DIRECTORY}")
