# Targets for a torch wheel. Used by Tandem's own build and, installed, by tandemConfig.cmake.

# tandem_torch_targets(DIR): defines tandem::libtorch (c10 and torch_cpu), unless there is one.
function(tandem_torch_targets torch)
  if(TARGET tandem::libtorch)
    return()
  endif()
  # libtorch_cpu of a CUDA wheel needs two small CUDA libraries, which pip installs next to torch.
  cmake_path(GET torch PARENT_PATH site)
  add_library(tandem::libtorch INTERFACE IMPORTED GLOBAL)
  target_include_directories(tandem::libtorch SYSTEM INTERFACE
    "${torch}/include" "${torch}/include/torch/csrc/api/include")
  target_compile_definitions(tandem::libtorch INTERFACE USE_C10D_GLOO)
  target_link_libraries(tandem::libtorch INTERFACE "${torch}/lib/libtorch_cpu.so" "${torch}/lib/libc10.so")
  target_link_options(tandem::libtorch INTERFACE
    "LINKER:--allow-shlib-undefined" "LINKER:-rpath,${torch}/lib" "LINKER:-rpath,${site}/nvidia/cu13/lib")

  # ATen's parallel_for is a template in a header: a source that includes it runs it on one thread unless it is compiled
  # with OpenMP. Link the wheel's own OpenMP runtime, so that our threads and libtorch's are one pool. That runtime
  # supports only g++'s calls, and the thread sanitizer does not know its locks: there the runtime only answers
  # questions.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT TANDEM_SANITIZER STREQUAL "thread")
    target_compile_options(tandem::libtorch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
  endif()
  if(EXISTS "${torch}/lib/libgomp.so.1")
    target_link_libraries(tandem::libtorch INTERFACE "${torch}/lib/libgomp.so.1")
  else()
    target_link_libraries(tandem::libtorch INTERFACE gomp)
  endif()
endfunction()

# tandem_torch_cuda_target(DIR): defines tandem::libtorch_cuda, the CUDA part of the wheel, if its libraries are found
# and its headers compile. The headers of CUDA and NCCL are next to torch too; cuda_runtime.h includes some that come
# with nvidia-cuda-crt or a CUDA toolkit. With LINK_ONLY the headers do not matter.
function(tandem_torch_cuda_target torch)
  cmake_path(GET torch PARENT_PATH site)
  set(headers "${site}/nvidia/nccl/include" "${site}/nvidia/cu13/include")
  if(TARGET tandem::libtorch_cuda OR NOT EXISTS "${torch}/lib/libtorch_cuda.so")
    return()
  endif()
  if(NOT "LINK_ONLY" IN_LIST ARGN)
    set(compiles OFF)
    if(EXISTS "${site}/nvidia/nccl/include/nccl.h")
      try_compile(compiles
        SOURCE_FROM_CONTENT cuda_headers.cpp "#include <cuda_runtime.h>\n#include <nccl.h>\nint main() {}\n"
        CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${headers}" NO_CACHE)
    endif()
    if(NOT compiles)
      return()
    endif()
  endif()
  file(GLOB cudart "${site}/nvidia/*/lib/libcudart.so.*")
  file(GLOB folders "${site}/nvidia/*/lib")
  list(TRANSFORM folders PREPEND "LINKER:-rpath,")
  add_library(tandem::libtorch_cuda INTERFACE IMPORTED GLOBAL)
  target_include_directories(tandem::libtorch_cuda SYSTEM INTERFACE ${headers})
  target_compile_definitions(tandem::libtorch_cuda INTERFACE USE_C10D_NCCL)
  target_link_libraries(tandem::libtorch_cuda INTERFACE
    tandem::libtorch "-Wl,--no-as-needed" "${torch}/lib/libtorch_cuda.so" "${torch}/lib/libc10_cuda.so"
    "-Wl,--as-needed" ${cudart})
  target_link_options(tandem::libtorch_cuda INTERFACE ${folders})
endfunction()
