# SPDX-License-Identifier: Apache-2.0
# Installs a package that may be moved as a whole: header, library, CMake package, pkg-config file and licence.
#
# The library keeps its line tables, so that profiles and leak reports name Rust lines;
# `cmake --install <tree> --strip` removes them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

foreach(dir LIBDIR INCLUDEDIR)
    if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
        message(FATAL_ERROR "CMAKE_INSTALL_${dir} is ${CMAKE_INSTALL_${dir}}, but the package must stay movable: "
                            "give a path below the prefix, and the prefix with CMAKE_INSTALL_PREFIX")
    endif()
endforeach()
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/kvmem")
set(pkgconfig_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
set(generated "${CMAKE_CURRENT_BINARY_DIR}/package")

configure_package_config_file(cmake/kvmem-config.cmake.in "${generated}/kvmem-config.cmake"
    INSTALL_DESTINATION "${package_dir}" PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file("${generated}/kvmem-config-version.cmake" COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH KVMEM_PKGCONFIG_TO_PREFIX "/${pkgconfig_dir}" "/")
string(REGEX REPLACE "/$" "" KVMEM_PKGCONFIG_TO_PREFIX "${KVMEM_PKGCONFIG_TO_PREFIX}")
configure_file(cmake/kvmem.pc.in "${generated}/kvmem.pc" @ONLY)

install(FILES include/kvmem.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
foreach(name IN ITEMS ${KVMEM_FILE_NAME} ${KVMEM_SONAME} ${KVMEM_LINK_NAME})
    install(FILES "${KVMEM_STAGE}/${name}" DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endforeach()
install(FILES "${generated}/kvmem-config.cmake" "${generated}/kvmem-config-version.cmake"
    DESTINATION "${package_dir}")
install(FILES "${generated}/kvmem.pc" DESTINATION "${pkgconfig_dir}")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")

# CMake strips only the targets that it built itself.
set(installed "\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/${KVMEM_FILE_NAME}")
install(CODE "
if(CMAKE_INSTALL_DO_STRIP)
    message(STATUS \"Stripping: ${installed}\")
    execute_process(COMMAND \"${CMAKE_STRIP}\" \"${installed}\" RESULT_VARIABLE failed)
    if(failed)
        message(FATAL_ERROR \"${CMAKE_STRIP} failed: \${failed}\")
    endif()
endif()")
