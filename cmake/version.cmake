# SPDX-License-Identifier: Apache-2.0
# Reads KVMEM_VERSION from Cargo.toml, the one place where the version is written.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/Cargo.toml")
file(STRINGS "${CMAKE_CURRENT_SOURCE_DIR}/Cargo.toml" KVMEM_VERSION REGEX "^version *= *\"" LIMIT_COUNT 1)
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" KVMEM_VERSION "${KVMEM_VERSION}")
if(NOT KVMEM_VERSION)
    message(FATAL_ERROR "Cargo.toml has no line like: version = \"1.2.3\"")
endif()

# The version in the SONAME. Before 1.0 a new minor version may break programs.
if(KVMEM_VERSION MATCHES "^(0\\.[0-9]+)\\.|^([0-9]+)\\.")
    set(KVMEM_SOVERSION "${CMAKE_MATCH_1}${CMAKE_MATCH_2}")
endif()
