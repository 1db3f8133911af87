# Defaults for a build of Tandem itself. They do not affect a project that includes Tandem.
if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
  endif()
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  find_program(TANDEM_CCACHE ccache)
  if(TANDEM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # ccache includes a precompiled header in its key only with this sloppiness; below the base directory it sees
    # relative paths, so that another clone finds what this one compiled.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
        ${TANDEM_CCACHE})
  endif()
  find_program(TANDEM_MOLD mold)
  if(TANDEM_MOLD AND NOT TANDEM_SANITIZER)  # mold 1.10 links small programs with a sanitizer so that they do not load
    add_link_options(-fuse-ld=mold)
  endif()
endif()
