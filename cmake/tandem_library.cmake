# tandem_library(NAME [TORCH_FREE] [SHARED] HEADERS h... SOURCES cpp... [ALONE cpp...] [USES folder...]
#                [LINKS target...])
#
# The library of one folder of tandem/: defines target tandem_NAME and its alias tandem::NAME. USES: folders of Tandem
# that its headers and sources include. LINKS: third-party targets, which are linked privately. TORCH_FREE: no header of
# torch, and no precompiled header. SHARED: a library that a program loads while it runs. The names of the others are
# listed in the global property TANDEM_FOLDERS, lower ones first.
#
# Most of a source's time goes into headers of torch, so with TANDEM_TOGETHER the SOURCES are compiled together, those
# ALONE excepted. They share their anonymous namespaces: names are distinct in a folder.
function(tandem_library name)
  cmake_parse_arguments(arg "TORCH_FREE;SHARED" "" "HEADERS;SOURCES;ALONE;USES;LINKS" ${ARGN})
  set(target tandem_${name})
  if(arg_SHARED)
    add_library(${target} SHARED)
  else()
    add_library(${target})
    set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
    set_property(GLOBAL APPEND PROPERTY TANDEM_FOLDERS ${name})
  endif()
  add_library(tandem::${name} ALIAS ${target})
  if(TANDEM_TOGETHER AND NOT arg_TORCH_FREE)
    tandem_together(arg_SOURCES)
  endif()
  target_sources(${target}
    PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${arg_HEADERS}
    PRIVATE ${arg_SOURCES} ${arg_ALONE})
  foreach(used ${arg_USES})
    target_link_libraries(${target} PUBLIC tandem::${used})
  endforeach()
  # Headers alone: a program that links the installed library does not need them.
  list(TRANSFORM arg_LINKS REPLACE "^nlohmann_json::.+" "$<BUILD_INTERFACE:\\0>")
  target_link_libraries(${target} PRIVATE ${arg_LINKS})
  set(torch_free)
  if(arg_TORCH_FREE)
    set(torch_free TORCH_FREE)
  endif()
  tandem_compile(${target} ${torch_free})
endfunction()

# tandem_together(SOURCES): replaces the list by sources that include up to 24 of its own each. CMake's unity builds
# name sources by absolute paths, which a compiler's cache does not find again in another clone.
function(tandem_together list)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
  set(all ${${list}})
  set(together)
  while(all)
    list(SUBLIST all 0 24 some)
    list(REMOVE_ITEM all ${some})
    list(TRANSFORM some REPLACE "(.+)" "#include \"${folder}/\\1\"\n")
    list(JOIN some "" text)
    list(LENGTH together number)
    list(APPEND together ${CMAKE_CURRENT_BINARY_DIR}/together_${number}.cpp)
    file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/together_${number}.cpp CONTENT "${text}" @ONLY)
  endwhile()
  set_source_files_properties(${${list}} PROPERTIES HEADER_FILE_ONLY ON)
  set(${list} ${together} ${${list}} PARENT_SCOPE)
endfunction()

# tandem_compile(TARGET [TORCH_FREE])
#
# Flags and the precompiled header for one of Tandem's own targets.
function(tandem_compile target)
  cmake_parse_arguments(arg "TORCH_FREE" "" "" ${ARGN})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC tandem::libtorch Threads::Threads)
  # Disabled: warnings about options aggregates, which are initialised by name; those of g++ 12 about overflows in
  # std::string where there are none; and that about a source's own types in its classes, which are seen as a header's
  # where sources are compiled together.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers
    $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow -Wno-array-bounds -Wno-restrict -Wno-subobject-linkage>)
  # A shared library may hold any folder. One setting for all targets, because they share a precompiled header; calls
  # within a source may still be inlined.
  target_compile_options(${target} PRIVATE -fPIC -fno-semantic-interposition)
  tandem_optimise(${target})
  if(TANDEM_WARNINGS_AS_ERRORS)  # but that about reading too much, which g++ 12 also takes short strings for
    target_compile_options(${target} PRIVATE -Werror $<$<CXX_COMPILER_ID:GNU>:-Wno-error=stringop-overread>)
  endif()
  if(TANDEM_SANITIZER)  # whose checks of addresses part sums from products, so that some would be fused and some not
    target_compile_options(${target} PRIVATE -fsanitize=${TANDEM_SANITIZER} -fno-omit-frame-pointer -ffp-contract=off)
    target_link_options(${target} PUBLIC -fsanitize=${TANDEM_SANITIZER})
  endif()
  if(NOT arg_TORCH_FREE AND NOT target STREQUAL "tandem_pch")
    target_precompile_headers(${target} REUSE_FROM tandem_pch)
  endif()
endfunction()

# Optimises the code in a project that includes Tandem and sets neither a build type nor an -O flag.
function(tandem_optimise target)
  if(NOT CMAKE_CXX_FLAGS MATCHES "(^| )-O")
    target_compile_options(${target} PRIVATE $<$<STREQUAL:$<CONFIG>,>:-O3>)
    target_compile_definitions(${target} PRIVATE $<$<STREQUAL:$<CONFIG>,>:NDEBUG>)
  endif()
endfunction()

# The precompiled header that all targets share. Do not add headers: templates that a precompiled header instantiates
# are compiled again in every source that uses it (torch/csrc/autograd/custom_function.h: a second each).
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/pch.cpp CONTENT "// Holds the precompiled header.\n")
add_library(tandem_pch OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/pch.cpp)
tandem_compile(tandem_pch)
target_precompile_headers(tandem_pch PRIVATE <ATen/ATen.h> <ATen/core/grad_mode.h>
  <algorithm> <cstdint> <filesystem> <functional> <map> <memory> <optional> <span> <string> <string_view> <vector>)
