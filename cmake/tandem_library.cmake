# tandem_library(NAME [TORCH_FREE] HEADERS h... SOURCES cpp... [USES folder...] [LINKS target...])
#
# One folder of tandem/: makes target tandem_NAME and alias tandem::NAME. USES names the folders of Tandem that its
# headers and sources include; LINKS names third parties, which stay private.
function(tandem_library name)
  cmake_parse_arguments(arg "TORCH_FREE" "" "HEADERS;SOURCES;USES;LINKS" ${ARGN})
  set(target tandem_${name})
  add_library(${target})
  add_library(tandem::${name} ALIAS ${target})
  target_sources(${target}
    PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${arg_HEADERS}
    PRIVATE ${arg_SOURCES})
  foreach(used ${arg_USES})
    target_link_libraries(${target} PUBLIC tandem::${used})
  endforeach()
  target_link_libraries(${target} PRIVATE ${arg_LINKS})
  tandem_compile(${target})
endfunction()

# Flags and the shared precompiled header for one of Tandem's own targets.
function(tandem_compile target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC tandem::libtorch Threads::Threads)
  # Left out: options aggregates are filled by name, and g++ 12 sees overflows in std::string that are none.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers
    $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow -Wno-array-bounds -Wno-restrict>)
  tandem_optimise(${target})
  if(TANDEM_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(TANDEM_SANITIZER)
    target_compile_options(${target} PRIVATE -fsanitize=${TANDEM_SANITIZER} -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${TANDEM_SANITIZER})
  endif()
  if(NOT target STREQUAL tandem_pch)
    target_precompile_headers(${target} REUSE_FROM tandem_pch)
  endif()
endfunction()

# A project that includes Tandem and names neither a build type nor an -O gets optimised code.
function(tandem_optimise target)
  if(NOT CMAKE_CXX_FLAGS MATCHES "(^| )-O")
    target_compile_options(${target} PRIVATE $<$<STREQUAL:$<CONFIG>,>:-O3>)
    target_compile_definitions(${target} PRIVATE $<$<STREQUAL:$<CONFIG>,>:NDEBUG>)
  endif()
endfunction()

file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/tandem_pch.cpp
  CONTENT "// Holds the precompiled header that all targets share.\n")
add_library(tandem_pch OBJECT ${PROJECT_BINARY_DIR}/tandem_pch.cpp)
tandem_compile(tandem_pch)
target_precompile_headers(tandem_pch PRIVATE
  <ATen/ATen.h> <torch/csrc/autograd/custom_function.h>
  <algorithm> <cstdint> <filesystem> <functional> <map> <memory> <optional> <span> <string> <string_view> <vector>)
