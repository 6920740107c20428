# SPDX-License-Identifier: Apache-2.0
# Builds the client of etcd with cargo, and stages it beside libkvmem.so, which loads it when a directory in etcd is created.
# It is a library and a crate of its own: gRPC and TLS are as large as the rest of kvmem, and most programs need neither.

option(KVMEM_ETCD "Build the client of etcd, which needs protoc" ${top_level})
if(NOT KVMEM_ETCD)
    return()
endif()

find_program(KVMEM_PROTOC protoc DOC "The protobuf compiler, for the client of etcd")
if(NOT KVMEM_PROTOC)
    message(FATAL_ERROR "The client of etcd needs protoc to build, and it was not found. Install protobuf-compiler and "
                        "libprotobuf-dev, or set -DKVMEM_ETCD=OFF")
endif()

set(KVMEM_ETCD_NAME libkvmem_etcd.so.${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(KVMEM_ETCD_FILE "${KVMEM_STAGE}/${KVMEM_ETCD_NAME}")
file(GLOB_RECURSE etcd_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/etcd/src/*.rs")
set(etcd_cargo "${CMAKE_COMMAND}" -E env "PROTOC=${KVMEM_PROTOC}" "${KVMEM_CARGO}")
set(etcd_options --release --locked --config "${rust_flags}" --target-dir "${KVMEM_CARGO_TARGET_DIR}/etcd" ${cargo_target})
add_custom_command(
    OUTPUT "${KVMEM_ETCD_FILE}"
    COMMAND nice ${etcd_cargo} build --lib ${etcd_options}
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${KVMEM_STAGE}"
    COMMAND "${CMAKE_COMMAND}" -E copy
        "${KVMEM_CARGO_TARGET_DIR}/etcd/${KVMEM_RUST_TARGET}/release/libkvmem_etcd.so" "${KVMEM_ETCD_FILE}.new"
    COMMAND "${CMAKE_COMMAND}" -E rename "${KVMEM_ETCD_FILE}.new" "${KVMEM_ETCD_FILE}"
    DEPENDS ${etcd_sources} src/directory/etcd/protocol.rs etcd/Cargo.toml etcd/Cargo.lock
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/etcd"
    COMMENT "Building ${KVMEM_ETCD_NAME} with cargo"
    VERBATIM)
# Beside the cargo of libkvmem.so, which takes longest of all, most of the time on one core: `nice` gives way to it.
add_custom_target(kvmem_etcd ALL DEPENDS "${KVMEM_ETCD_FILE}")

# For `make lint`. The same options: build scripts, procedural macros and the C code of ring are compiled once.
add_custom_target(kvmem_etcd_lint
    COMMAND ${etcd_cargo} clippy --all-targets ${etcd_options} -- -D warnings
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/etcd" USES_TERMINAL VERBATIM)
