# Finds libtorch inside the Python wheel, without asking CMake for CUDA.
#
# Search order: -DTANDEM_TORCH_DIR or the environment variable TANDEM_TORCH_DIR (the folder that contains include/ and
# lib/), then the wheel in .venv next to the sources, then the wheel of python3 on PATH.
# Defines: tandem::libtorch (c10 and torch_cpu), tandem::libtorch_cuda if all its parts are found, LibTorch_VERSION,
# LibTorch_DIR.
set(TANDEM_TORCH_DIR "$ENV{TANDEM_TORCH_DIR}" CACHE PATH "Folder of the torch wheel (holds include/ and lib/)")
set(_hint "torch is needed, version 2.11 or newer. Install it with:\n"
          "    python3 -m venv .venv && .venv/bin/pip install torch==2.11.0\n"
          "or name a wheel's folder with -DTANDEM_TORCH_DIR=.../site-packages/torch")
list(JOIN _hint "" _hint)

set(_torch "${TANDEM_TORCH_DIR}")
if(NOT _torch)
  # Does not import torch, so that this works before the CUDA libraries are installed.
  set(_ask "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')")
  foreach(_python ${PROJECT_SOURCE_DIR}/.venv/bin/python ${Python3_EXECUTABLE} python3)
    execute_process(COMMAND ${_python} -c "${_ask}" OUTPUT_VARIABLE _torch OUTPUT_STRIP_TRAILING_WHITESPACE
                    RESULT_VARIABLE _failed ERROR_QUIET)
    if(NOT _failed AND _torch)
      break()
    endif()
    set(_torch "")
  endforeach()
endif()
if(NOT _torch OR NOT EXISTS "${_torch}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "No libtorch found (looked in '${_torch}', .venv and python3). ${_hint}")
endif()

file(STRINGS "${_torch}/include/torch/headeronly/version.h" _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE "[^0-9;]" "" LibTorch_VERSION "${_lines}")
list(JOIN LibTorch_VERSION "." LibTorch_VERSION)
if(LibTorch_VERSION VERSION_LESS "${LibTorch_FIND_VERSION}")
  message(FATAL_ERROR "torch ${LibTorch_VERSION} in ${_torch} is too old. ${_hint}")
endif()
set(LibTorch_DIR "${_torch}")

# libtorch_cpu of a CUDA wheel needs two small CUDA libraries, which pip installs next to torch.
get_filename_component(_site "${_torch}" DIRECTORY)
set(_cuda "${_site}/nvidia/cu13/lib")
add_library(tandem_libtorch INTERFACE)
add_library(tandem::libtorch ALIAS tandem_libtorch)
target_include_directories(tandem_libtorch SYSTEM INTERFACE
  "${_torch}/include" "${_torch}/include/torch/csrc/api/include")
target_compile_definitions(tandem_libtorch INTERFACE USE_C10D_GLOO)
target_link_libraries(tandem_libtorch INTERFACE "${_torch}/lib/libtorch_cpu.so" "${_torch}/lib/libc10.so")
target_link_options(tandem_libtorch INTERFACE
  "LINKER:--allow-shlib-undefined" "LINKER:-rpath,${_torch}/lib" "LINKER:-rpath,${_cuda}")

# ATen's parallel_for is a template in a header: a source that includes it runs it on one thread unless it is compiled
# with OpenMP. Link the wheel's own OpenMP runtime, so that our threads and libtorch's are one pool. That runtime
# supports only g++'s calls, and the thread sanitizer does not know its locks: there the runtime only answers questions.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT TANDEM_SANITIZER STREQUAL "thread")
  target_compile_options(tandem_libtorch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
endif()
if(EXISTS "${_torch}/lib/libgomp.so.1")
  target_link_libraries(tandem_libtorch INTERFACE "${_torch}/lib/libgomp.so.1")
else()
  target_link_libraries(tandem_libtorch INTERFACE gomp)
endif()

# The CUDA part of the wheel. The headers of CUDA and NCCL are next to torch too. The target is defined only if all
# headers are found: cuda_runtime.h includes some that come with nvidia-cuda-crt or a CUDA toolkit.
set(_nvidia "${_site}/nvidia")
set(_cuda_headers "${_nvidia}/nccl/include" "${_nvidia}/cu13/include")
set(_cuda_compiles OFF)
if(EXISTS "${_torch}/lib/libtorch_cuda.so" AND EXISTS "${_nvidia}/nccl/include/nccl.h")
  try_compile(_cuda_compiles
    SOURCE_FROM_CONTENT cuda_headers.cpp "#include <cuda_runtime.h>\n#include <nccl.h>\nint main() {}\n"
    CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${_cuda_headers}" NO_CACHE)
endif()
if(_cuda_compiles)
  file(GLOB _cuda_folders "${_nvidia}/*/lib")
  list(TRANSFORM _cuda_folders PREPEND "LINKER:-rpath,")
  add_library(tandem_libtorch_cuda INTERFACE)
  add_library(tandem::libtorch_cuda ALIAS tandem_libtorch_cuda)
  target_include_directories(tandem_libtorch_cuda SYSTEM INTERFACE ${_cuda_headers})
  target_compile_definitions(tandem_libtorch_cuda INTERFACE USE_C10D_NCCL)
  target_link_libraries(tandem_libtorch_cuda INTERFACE
    tandem::libtorch "-Wl,--no-as-needed" "${_torch}/lib/libtorch_cuda.so" "${_torch}/lib/libc10_cuda.so"
    "-Wl,--as-needed")
  target_link_options(tandem_libtorch_cuda INTERFACE ${_cuda_folders})
elseif(TANDEM_CUDA)
  message(FATAL_ERROR "TANDEM_CUDA=ON needs torch's CUDA libraries, NCCL's and CUDA's headers beside ${_torch}. "
                      "Install them with: .venv/bin/pip install -r tools/requirements-test.txt")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_DIR VERSION_VAR LibTorch_VERSION)
