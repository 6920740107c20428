# SPDX-License-Identifier: Apache-2.0
# Installs a relocatable package. Components: Runtime (the library), Tools (kvmem-doctor), Development (headers, CMake
# package, pkg-config file, documentation, examples) and Debug (the library's line tables).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

foreach(dir LIBDIR INCLUDEDIR DOCDIR)
    if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
        message(FATAL_ERROR "CMAKE_INSTALL_${dir} is ${CMAKE_INSTALL_${dir}}, but the package must be relocatable: "
                            "set a path relative to the prefix, and the prefix with CMAKE_INSTALL_PREFIX")
    endif()
endforeach()
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/kvmem")
set(pkgconfig_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
set(generated "${CMAKE_CURRENT_BINARY_DIR}/package")

file(RELATIVE_PATH KVMEM_PACKAGE_TO_PREFIX "/${package_dir}" "/")
configure_package_config_file(cmake/kvmem-config.cmake.in "${generated}/kvmem-config.cmake"
    INSTALL_DESTINATION "${package_dir}" PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file("${generated}/kvmem-config-version.cmake" COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH KVMEM_PKGCONFIG_TO_PREFIX "/${pkgconfig_dir}" "/")
string(REGEX REPLACE "/$" "" KVMEM_PKGCONFIG_TO_PREFIX "${KVMEM_PKGCONFIG_TO_PREFIX}")
configure_file(cmake/kvmem.pc.in "${generated}/kvmem.pc" @ONLY)

# ---- generated files --------------------------------------------------------------------------------------------------

# A debugger finds the line tables in the folder .debug next to the library. They are optional.
set(stripped "${generated}/${KVMEM_FILE_NAME}")
set(debug_file "${generated}/${KVMEM_FILE_NAME}.debug")
add_custom_command(
    OUTPUT "${stripped}" "${debug_file}"
    COMMAND "${CMAKE_OBJCOPY}" --only-keep-debug "${KVMEM_STAGE}/${KVMEM_FILE_NAME}" "${debug_file}"
    COMMAND "${CMAKE_OBJCOPY}" --strip-unneeded "--add-gnu-debuglink=${debug_file}"
        "${KVMEM_STAGE}/${KVMEM_FILE_NAME}" "${stripped}"
    DEPENDS kvmem "${KVMEM_STAGE}/${KVMEM_FILE_NAME}"
    COMMENT "Separating the line tables of ${KVMEM_FILE_NAME}" VERBATIM)

if(KVMEM_ETCD)
    set(stripped_etcd "${generated}/${KVMEM_ETCD_NAME}")
    add_custom_command(
        OUTPUT "${stripped_etcd}"
        COMMAND "${CMAKE_OBJCOPY}" --strip-unneeded "${KVMEM_ETCD_FILE}" "${stripped_etcd}"
        DEPENDS kvmem_etcd "${KVMEM_ETCD_FILE}"
        COMMENT "Stripping ${KVMEM_ETCD_NAME}" VERBATIM)
    install(FILES "${stripped_etcd}" DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT Runtime)
endif()

find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(licences "${generated}/THIRD-PARTY-LICENSES")
add_custom_command(
    OUTPUT "${licences}"
    COMMAND "${CMAKE_COMMAND}" -E env "CARGO=${KVMEM_CARGO}"
        "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/scripts/licences.py" "${licences}"
    DEPENDS Cargo.toml Cargo.lock etcd/Cargo.toml etcd/Cargo.lock scripts/licences.py
    COMMENT "Collecting the licences of the crates in the libraries" VERBATIM)
# A list of the crates in the libraries, in CycloneDX's format, for tools that look for vulnerabilities.
set(bill "${generated}/kvmem.cdx.json")
add_custom_command(
    OUTPUT "${bill}"
    COMMAND "${CMAKE_COMMAND}" -E env "CARGO=${KVMEM_CARGO}"
        "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/scripts/supply_chain.py" list "${bill}"
    DEPENDS Cargo.toml Cargo.lock etcd/Cargo.toml etcd/Cargo.lock scripts/licences.py scripts/supply_chain.py
    COMMENT "Listing the crates in the libraries" VERBATIM)
# The pages link to headers and to each other, as they are installed.
set(pages "${generated}/pages")
file(GLOB page_sources CONFIGURE_DEPENDS README.md CHANGELOG.md docs/*.md docs/pictures/*.svg examples/README.md)
file(RELATIVE_PATH pages_to_headers "/${CMAKE_INSTALL_DOCDIR}" "/${CMAKE_INSTALL_INCLUDEDIR}")
add_custom_command(
    OUTPUT "${pages}.stamp"
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/scripts/installed_pages.py" "${pages}" "${pages_to_headers}"
    COMMAND "${CMAKE_COMMAND}" -E touch "${pages}.stamp"
    DEPENDS ${page_sources} scripts/installed_pages.py
    COMMENT "Writing the pages with the links of an installation" VERBATIM)
add_custom_target(kvmem_package ALL DEPENDS "${stripped}" "${debug_file}" ${stripped_etcd} "${licences}" "${bill}" "${pages}.stamp")

# ---- installed files --------------------------------------------------------------------------------------------------

install(FILES "${stripped}" DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT Runtime)
install(FILES "${KVMEM_STAGE}/${KVMEM_SONAME}" DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT Runtime)
install(FILES LICENSE "${licences}" "${bill}" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT Runtime)

install(FILES "${KVMEM_STAGE}/${KVMEM_LINK_NAME}" DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT Development)
install(FILES include/kvmem.h include/kvmem.hpp
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT Development)
install(DIRECTORY include/kvmem DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT Development)
install(FILES "${generated}/kvmem-config.cmake" "${generated}/kvmem-config-version.cmake"
    DESTINATION "${package_dir}" COMPONENT Development)
install(FILES "${generated}/kvmem.pc" DESTINATION "${pkgconfig_dir}" COMPONENT Development)
install(DIRECTORY "${pages}/" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT Development)
# The Go package is a module: users point a replace directive at it.
install(DIRECTORY bindings/go/ DESTINATION "${CMAKE_INSTALL_DATADIR}/kvmem/go" COMPONENT Development
    PATTERN without-counterpart.txt EXCLUDE)
# Users fetch the Zig package from there.
install(DIRECTORY bindings/zig/ DESTINATION "${CMAKE_INSTALL_DATADIR}/kvmem/zig" COMPONENT Development
    PATTERN without-counterpart.txt EXCLUDE PATTERN .zig-cache EXCLUDE PATTERN zig-out EXCLUDE)
install(DIRECTORY examples/c examples/cpp examples/go examples/zig DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples" COMPONENT Development)

install(FILES "${debug_file}" DESTINATION "${CMAKE_INSTALL_LIBDIR}/.debug" COMPONENT Debug)

# ---- archives: `cpack -G TGZ` and `cpack -G DEB` in the build tree, or `make package` ---------------------------------

set(CPACK_PACKAGE_NAME kvmem)
set(CPACK_PACKAGE_VENDOR kvmem)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "KV-cache memory for LLM inference engines")
set(CPACK_RESOURCE_FILE_LICENSE "${CMAKE_CURRENT_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGE_FILE_NAME "kvmem-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_COMPONENTS_ALL Runtime Development Debug)
if(KVMEM_BUILD_DOCTOR)
    list(APPEND CPACK_COMPONENTS_ALL Tools)
endif()
# The archive contains all components. There is one Debian package per component, with Debian's usual names.
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "The kvmem developers")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# kvmem-doctor needs the library of another package of this build.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${KVMEM_STAGE}")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME "libkvmem${KVMEM_SOVERSION}")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libkvmem-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libkvmem${KVMEM_SOVERSION} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME kvmem-doctor)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "libkvmem${KVMEM_SOVERSION} (>= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEBUG_PACKAGE_NAME "libkvmem${KVMEM_SOVERSION}-dbg")
set(CPACK_DEBIAN_DEBUG_PACKAGE_SECTION debug)
set(CPACK_DEBIAN_DEBUG_PACKAGE_DEPENDS "libkvmem${KVMEM_SOVERSION} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEBUG_PACKAGE_SHLIBDEPS OFF)
include(CPack)
