# Where libtorch is. Used by Tandem's own build and, installed, by tandemConfig.cmake.

# tandem_find_torch(RESULT [FOLDER FROM]...): sets RESULT to the folder of a torch wheel (it holds include/ and lib/)
# and RESULT_FROM to who named it; both empty if there is none. The first in this order counts:
#   TANDEM_TORCH_DIR, a variable of CMake or of the environment
#   what find_package(Torch) uses: Torch_DIR, then CMAKE_PREFIX_PATH (torch.utils.cmake_prefix_path or the folder)
#   the pairs of FOLDER and FROM
#   .venv beside the project's sources, then beside Tandem's; then Python3_EXECUTABLE and python3
# A folder that TANDEM_TORCH_DIR names is taken even if it holds no torch, so that the caller can say so.
function(tandem_find_torch result)
  foreach(dir "${TANDEM_TORCH_DIR}" "$ENV{TANDEM_TORCH_DIR}")
    if(dir)
      get_filename_component(dir "${dir}" ABSOLUTE)  # without a slash at the end
      set(${result} "${dir}" PARENT_SCOPE)
      set(${result}_FROM "TANDEM_TORCH_DIR" PARENT_SCOPE)
      return()
    endif()
  endforeach()

  set(candidates)
  if(Torch_DIR)
    list(APPEND candidates "${Torch_DIR}/../../.." Torch_DIR)
  endif()
  cmake_path(CONVERT "$ENV{CMAKE_PREFIX_PATH}" TO_CMAKE_PATH_LIST environment)
  foreach(prefix ${CMAKE_PREFIX_PATH} ${environment})
    list(APPEND candidates "${prefix}" CMAKE_PREFIX_PATH "${prefix}/../.." CMAKE_PREFIX_PATH)
  endforeach()
  list(APPEND candidates ${ARGN})
  while(candidates)
    list(POP_FRONT candidates dir from)
    get_filename_component(dir "${dir}" ABSOLUTE)
    if(EXISTS "${dir}/lib/libtorch_cpu.so")
      set(${result} "${dir}" PARENT_SCOPE)
      set(${result}_FROM "${from}" PARENT_SCOPE)
      return()
    endif()
  endwhile()

  # Does not import torch, so that this works before the CUDA libraries are installed.
  set(ask "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')")
  set(${result} "" PARENT_SCOPE)
  set(${result}_FROM "" PARENT_SCOPE)
  set(pythons ${CMAKE_SOURCE_DIR}/.venv/bin/python ${PROJECT_SOURCE_DIR}/.venv/bin/python ${Python3_EXECUTABLE} python3)
  foreach(python ${pythons})
    execute_process(COMMAND ${python} -c "${ask}" OUTPUT_VARIABLE dir OUTPUT_STRIP_TRAILING_WHITESPACE
                    RESULT_VARIABLE failed ERROR_QUIET)
    if(NOT failed AND EXISTS "${dir}/lib/libtorch_cpu.so")
      set(${result} "${dir}" PARENT_SCOPE)
      set(${result}_FROM "${python}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# tandem_torch_version(RESULT DIR): MAJOR.MINOR.PATCH of the torch in a folder; empty if its headers do not tell.
function(tandem_torch_version result dir)
  set(version "")
  set(header "${dir}/include/torch/headeronly/version.h")
  if(EXISTS "${header}" AND EXISTS "${dir}/lib/libtorch_cpu.so")
    file(STRINGS "${header}" lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE "[^0-9;]" "" version "${lines}")
    list(JOIN version "." version)
  endif()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()
