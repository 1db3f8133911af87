# What `cmake --install` copies: the program, libtandem_ops.so if it is built, a library and the headers of each folder,
# the package that find_package(tandem) reads, and tandem.pc for pkg-config.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
get_property(folders GLOBAL PROPERTY TANDEM_FOLDERS)
set(targets ${folders})
list(TRANSFORM targets PREPEND tandem_)

install(TARGETS tandem)
install(TARGETS tandem_operators LIBRARY OPTIONAL)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(TARGETS ${targets} tandem_all EXPORT tandem FILE_SET HEADERS)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/tandem)
list(JOIN folders " " folder_names)
install(EXPORT tandem NAMESPACE tandem:: FILE tandemTargets.cmake DESTINATION ${package})
configure_package_config_file(cmake/tandemConfig.cmake.in tandemConfig.cmake INSTALL_DESTINATION ${package}
                              NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(tandemConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tandemConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/tandemConfigVersion.cmake
              cmake/tandem_find_torch.cmake cmake/tandem_torch_targets.cmake
        DESTINATION ${package})

# tandem_pkg_config(TARGET): adds what a torch target asks of a program to pc_cflags and pc_libs.
function(tandem_pkg_config target)
  foreach(property INCLUDE_DIRECTORIES COMPILE_DEFINITIONS COMPILE_OPTIONS LINK_OPTIONS LINK_LIBRARIES)
    get_target_property(${property} ${target} INTERFACE_${property})
    if(NOT ${property})
      set(${property})
    endif()
  endforeach()
  list(TRANSFORM INCLUDE_DIRECTORIES PREPEND "-isystem ")
  list(TRANSFORM COMPILE_DEFINITIONS PREPEND "-D")
  list(TRANSFORM COMPILE_OPTIONS REPLACE "^\\$<\\$<COMPILE_LANGUAGE:CXX>:(.*)>$" "\\1")
  list(TRANSFORM LINK_OPTIONS REPLACE "^LINKER:" "-Wl,")
  list(FILTER LINK_LIBRARIES EXCLUDE REGEX "::")
  list(TRANSFORM LINK_LIBRARIES REPLACE "^([^-/].*)$" "-l\\1")
  list(JOIN INCLUDE_DIRECTORIES " " includes)
  set(pc_cflags ${pc_cflags} ${includes} ${COMPILE_DEFINITIONS} ${COMPILE_OPTIONS} PARENT_SCOPE)
  set(pc_libs ${pc_libs} ${LINK_OPTIONS} ${LINK_LIBRARIES} PARENT_SCOPE)
endfunction()

set(pc_cflags)
set(pc_libs ${targets})
list(REVERSE pc_libs)  # a library comes before those that it uses
list(TRANSFORM pc_libs PREPEND "-l")
if(TANDEM_CUDA)
  tandem_pkg_config(tandem::libtorch_cuda)
endif()
tandem_pkg_config(tandem::libtorch)
list(JOIN pc_cflags " " pc_cflags)
list(JOIN pc_libs " " pc_libs)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
           OUTPUT_VARIABLE pc_prefix)
configure_file(cmake/tandem.pc.in tandem.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tandem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
