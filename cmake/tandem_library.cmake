# tandem_library(NAME [LIGHT|TORCH_FREE] [SHARED] HEADERS h... SOURCES cpp... [TOGETHER cpp...] [USES folder...]
#                [LINKS target...])
#
# The library of one folder of tandem/: defines target tandem_NAME and its alias tandem::NAME. USES: folders of Tandem
# that its headers and sources include. LINKS: third-party targets, which are linked privately. TOGETHER: sources to
# compile as one, because they share headers that take longer to compile than they do. LIGHT, TORCH_FREE: see
# tandem_compile. SHARED: a library that a program loads while it runs.
function(tandem_library name)
  cmake_parse_arguments(arg "LIGHT;TORCH_FREE;SHARED" "" "HEADERS;SOURCES;TOGETHER;USES;LINKS" ${ARGN})
  set(target tandem_${name})
  if(arg_SHARED)
    add_library(${target} SHARED)
  else()
    add_library(${target})
  endif()
  add_library(tandem::${name} ALIAS ${target})
  target_sources(${target}
    PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${arg_HEADERS}
    PRIVATE ${arg_SOURCES} ${arg_TOGETHER})
  foreach(used ${arg_USES})
    target_link_libraries(${target} PUBLIC tandem::${used})
  endforeach()
  target_link_libraries(${target} PRIVATE ${arg_LINKS})
  if(arg_TOGETHER)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ${TANDEM_TOGETHER} UNITY_BUILD_MODE GROUP)
    set_source_files_properties(${arg_TOGETHER} PROPERTIES UNITY_GROUP together)
  endif()
  set(headers)
  if(arg_LIGHT)
    set(headers LIGHT)
  elseif(arg_TORCH_FREE)
    set(headers TORCH_FREE)
  endif()
  tandem_compile(${target} ${headers})
endfunction()

# tandem_compile(TARGET [LIGHT|TORCH_FREE])
#
# Flags and a precompiled header for one of Tandem's own targets. LIGHT: most sources include only the tensor header of
# torch, and only that header is precompiled; sources that include all of ATen compile it themselves. TORCH_FREE: no
# header of torch, and no precompiled header.
function(tandem_compile target)
  cmake_parse_arguments(arg "LIGHT;TORCH_FREE" "" "" ${ARGN})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC tandem::libtorch Threads::Threads)
  # Disabled: warnings about options aggregates, which are initialised by name, and about overflows in std::string,
  # which g++ 12 reports where there are none.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers
    $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow -Wno-array-bounds -Wno-restrict>)
  # A shared library may hold any folder. One setting for all targets, because they share precompiled headers; calls
  # within a source may still be inlined.
  target_compile_options(${target} PRIVATE -fPIC -fno-semantic-interposition)
  tandem_optimise(${target})
  if(TANDEM_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(TANDEM_SANITIZER)
    target_compile_options(${target} PRIVATE -fsanitize=${TANDEM_SANITIZER} -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${TANDEM_SANITIZER})
  endif()
  if(arg_TORCH_FREE)
    return()
  elseif(arg_LIGHT)
    target_precompile_headers(${target} REUSE_FROM tandem_pch_tensor)
  elseif(NOT target MATCHES "^tandem_pch_")
    target_precompile_headers(${target} REUSE_FROM tandem_pch_aten)
  endif()
endfunction()

# Optimises the code in a project that includes Tandem and sets neither a build type nor an -O flag.
function(tandem_optimise target)
  if(NOT CMAKE_CXX_FLAGS MATCHES "(^| )-O")
    target_compile_options(${target} PRIVATE $<$<STREQUAL:$<CONFIG>,>:-O3>)
    target_compile_definitions(${target} PRIVATE $<$<STREQUAL:$<CONFIG>,>:NDEBUG>)
  endif()
endfunction()

# tandem_precompiled(NAME header...)
#
# The precompiled header tandem_pch_NAME, from these headers and some of the standard library.
function(tandem_precompiled name)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/pch_${name}.cpp
    CONTENT "// Holds a precompiled header that targets share.\n")
  add_library(tandem_pch_${name} OBJECT ${PROJECT_BINARY_DIR}/pch_${name}.cpp)
  tandem_compile(tandem_pch_${name})
  target_precompile_headers(tandem_pch_${name} PRIVATE ${ARGN}
    <algorithm> <cstdint> <filesystem> <functional> <map> <memory> <optional> <span> <string> <string_view> <vector>)
endfunction()

# Do not add headers: templates that a precompiled header instantiates are compiled again in every source that uses it
# (torch/csrc/autograd/custom_function.h: a second each).
tandem_precompiled(aten <ATen/ATen.h> <ATen/core/grad_mode.h>)
tandem_precompiled(tensor <ATen/core/Tensor.h> <ATen/core/grad_mode.h>)
