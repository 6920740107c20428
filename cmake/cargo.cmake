# SPDX-License-Identifier: Apache-2.0
# Builds the Rust library with cargo, stages it under its three names, and defines the target kvmem::kvmem.

find_program(KVMEM_CARGO cargo HINTS "$ENV{CARGO_HOME}/bin" "$ENV{HOME}/.cargo/bin" DOC "cargo, which builds kvmem")
if(NOT KVMEM_CARGO)
    message(FATAL_ERROR "kvmem needs cargo to build, and it was not found. Install Rust with rustup, "
                        "or set -DKVMEM_CARGO=/path/to/cargo")
endif()

set(default "${CMAKE_CURRENT_BINARY_DIR}/cargo")
if(DEFINED ENV{CARGO_TARGET_DIR})
    get_filename_component(default "$ENV{CARGO_TARGET_DIR}" ABSOLUTE)
endif()
set(KVMEM_CARGO_TARGET_DIR "${default}" CACHE PATH "Where cargo builds; several CMake trees may share it")

set(KVMEM_RUST_TARGET "" CACHE STRING "Target triple to build for; empty for this machine, without cross-compiling")
set(cargo_target "")
if(KVMEM_RUST_TARGET)
    set(cargo_target --target "${KVMEM_RUST_TARGET}")
endif()
# dev is for `make check`: it has debug assertions, and shares what `cargo test` compiles.
set(KVMEM_CARGO_PROFILE release CACHE STRING "cargo's profile: release, or dev for tests during development")
string(REPLACE dev debug profile_folder "${KVMEM_CARGO_PROFILE}")
set(built "${KVMEM_CARGO_TARGET_DIR}/${KVMEM_RUST_TARGET}/${profile_folder}/libkvmem.so")

# File names and line tables contain kvmem/src/... and crates/... instead of paths of this machine. This is a cargo setting rather than
# RUSTFLAGS, so that the flags of a user take precedence.
set(cargo_home "$ENV{CARGO_HOME}")
if(NOT cargo_home)
    set(cargo_home "$ENV{HOME}/.cargo")
endif()
set(rust_flags "build.rustflags=['--remap-path-prefix=${CMAKE_CURRENT_SOURCE_DIR}=kvmem'\
,'--remap-path-prefix=${cargo_home}/registry/src=crates']")
# For the shared library alone: cargo ignores `lto` for a library that is an rlib as well.
set(cargo_command rustc --lib --crate-type cdylib)
if(KVMEM_CARGO_PROFILE STREQUAL dev)
    # With other flags, or without the features that development dependencies need, cargo would compile all crates again.
    set(rust_flags "build.rustflags=[]")
    set(cargo_command build --lib --test header)
endif()

set(KVMEM_STAGE "${CMAKE_CURRENT_BINARY_DIR}/lib")
set(KVMEM_LINK_NAME libkvmem.so)
set(KVMEM_SONAME ${KVMEM_LINK_NAME}.${KVMEM_SOVERSION})
set(KVMEM_FILE_NAME ${KVMEM_LINK_NAME}.${PROJECT_VERSION})

# CMAKE_BUILD_TYPE applies only to C and C++. A new file is renamed into place, so that a
# process that has the old file mapped is not affected.
file(GLOB_RECURSE rust_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/*")
add_custom_command(
    OUTPUT "${KVMEM_STAGE}/${KVMEM_FILE_NAME}"
    BYPRODUCTS "${KVMEM_STAGE}/${KVMEM_SONAME}" "${KVMEM_STAGE}/${KVMEM_LINK_NAME}"
    COMMAND "${KVMEM_CARGO}" ${cargo_command} --profile ${KVMEM_CARGO_PROFILE} --locked --config "${rust_flags}"
        --target-dir "${KVMEM_CARGO_TARGET_DIR}" ${cargo_target}
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${KVMEM_STAGE}"
    COMMAND "${CMAKE_COMMAND}" -E copy
        "${built}" "${KVMEM_STAGE}/${KVMEM_FILE_NAME}.new"
    COMMAND "${CMAKE_COMMAND}" -E rename
        "${KVMEM_STAGE}/${KVMEM_FILE_NAME}.new" "${KVMEM_STAGE}/${KVMEM_FILE_NAME}"
    COMMAND "${CMAKE_COMMAND}" -E create_symlink ${KVMEM_FILE_NAME} "${KVMEM_STAGE}/${KVMEM_SONAME}"
    COMMAND "${CMAKE_COMMAND}" -E create_symlink ${KVMEM_SONAME} "${KVMEM_STAGE}/${KVMEM_LINK_NAME}"
    DEPENDS ${rust_sources} Cargo.toml Cargo.lock
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    COMMENT "Building ${KVMEM_FILE_NAME} with cargo"
    USES_TERMINAL VERBATIM)
add_custom_target(kvmem ALL DEPENDS "${KVMEM_STAGE}/${KVMEM_FILE_NAME}")

# Ninja knows which command makes the file that programs link, so their sources compile while cargo runs. Other generators need
# the target before the first source.
add_library(kvmem::kvmem SHARED IMPORTED GLOBAL)
if(NOT CMAKE_GENERATOR MATCHES "Ninja")
    add_dependencies(kvmem::kvmem kvmem)
endif()
set_target_properties(kvmem::kvmem PROPERTIES
    IMPORTED_LOCATION "${KVMEM_STAGE}/${KVMEM_FILE_NAME}"
    IMPORTED_SONAME ${KVMEM_SONAME}
    INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_SOURCE_DIR}/include")
