# tandem_library(NAME [LIGHT|TORCH_FREE] HEADERS h... SOURCES cpp... [TOGETHER cpp...] [USES folder...]
#                [LINKS target...])
#
# One folder of tandem/: makes target tandem_NAME and alias tandem::NAME. USES names the folders of Tandem that its
# headers and sources include; LINKS names third parties, which stay private. Sources in TOGETHER are compiled as one:
# they share headers that cost more than they do. LIGHT and TORCH_FREE are told at tandem_compile.
function(tandem_library name)
  cmake_parse_arguments(arg "LIGHT;TORCH_FREE" "" "HEADERS;SOURCES;TOGETHER;USES;LINKS" ${ARGN})
  set(target tandem_${name})
  add_library(${target})
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

# tandem_compile(TARGET [LIGHT|TORCH_FREE]): flags and a precompiled header for one of Tandem's own targets. LIGHT: most
# sources take no more of torch than the tensor, and only that is precompiled; what includes all of ATen pays for it.
# TORCH_FREE: no header of torch, and nothing precompiled.
function(tandem_compile target)
  cmake_parse_arguments(arg "LIGHT;TORCH_FREE" "" "" ${ARGN})
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
  if(arg_TORCH_FREE)
    return()
  elseif(arg_LIGHT)
    target_precompile_headers(${target} REUSE_FROM tandem_pch_tensor)
  elseif(NOT target MATCHES "^tandem_pch_")
    target_precompile_headers(${target} REUSE_FROM tandem_pch_aten)
  endif()
endfunction()

# A project that includes Tandem and names neither a build type nor an -O gets optimised code.
function(tandem_optimise target)
  if(NOT CMAKE_CXX_FLAGS MATCHES "(^| )-O")
    target_compile_options(${target} PRIVATE $<$<STREQUAL:$<CONFIG>,>:-O3>)
    target_compile_definitions(${target} PRIVATE $<$<STREQUAL:$<CONFIG>,>:NDEBUG>)
  endif()
endfunction()

# tandem_precompiled(NAME header...): the precompiled header tandem_pch_NAME of these and the standard library's.
function(tandem_precompiled name)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/pch_${name}.cpp
    CONTENT "// Holds a precompiled header that targets share.\n")
  add_library(tandem_pch_${name} OBJECT ${PROJECT_BINARY_DIR}/pch_${name}.cpp)
  tandem_compile(tandem_pch_${name})
  target_precompile_headers(tandem_pch_${name} PRIVATE ${ARGN}
    <algorithm> <cstdint> <filesystem> <functional> <map> <memory> <optional> <span> <string> <string_view> <vector>)
endfunction()

# No more than these: what a header's templates instantiate is compiled again in every source that has it precompiled
# (torch/csrc/autograd/custom_function.h: a second each).
tandem_precompiled(aten <ATen/ATen.h> <ATen/core/grad_mode.h>)
tandem_precompiled(tensor <ATen/core/Tensor.h> <ATen/core/grad_mode.h>)
