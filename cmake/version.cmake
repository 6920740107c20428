# SPDX-License-Identifier: Apache-2.0
# Reads KVMEM_VERSION from Cargo.toml, the one place where the version is written.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/Cargo.toml")
file(STRINGS "${CMAKE_CURRENT_SOURCE_DIR}/Cargo.toml" KVMEM_VERSION REGEX "^version *= *\"" LIMIT_COUNT 1)
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" KVMEM_VERSION "${KVMEM_VERSION}")
if(NOT KVMEM_VERSION)
    message(FATAL_ERROR "Cargo.toml has no line like: version = \"1.2.3\"")
endif()

# The number of the binary interface, which is in the SONAME.
set(versions "${CMAKE_CURRENT_SOURCE_DIR}/src/ffi/common/version.rs")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${versions}")
file(READ "${versions}" KVMEM_SOVERSION)
string(REGEX MATCH "KVMEM_ABI_VERSION: u32 = [0-9]+" KVMEM_SOVERSION "${KVMEM_SOVERSION}")
string(REGEX MATCH "[0-9]+$" KVMEM_SOVERSION "${KVMEM_SOVERSION}")
if(NOT KVMEM_SOVERSION)
    message(FATAL_ERROR "${versions} has no KVMEM_ABI_VERSION")
endif()
