# tandem_cuda_objects(TARGET cu...): compiles CUDA sources, which take no torch, into objects of a library: for the GPUs
# of compute capability 8.0 and 9.0, and for later ones when the program starts. nvcc is called as a command, because a
# target with CUDA sources of its own would ask every program that links it, also an installed one, for a CUDA compiler.
function(tandem_cuda_objects target)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
  set(flags -std=c++20 -O3 -Xcompiler=-fPIC -ccbin ${CMAKE_CXX_COMPILER}
      -gencode=arch=compute_80,code=sm_80 "-gencode=arch=compute_90,code=[sm_90,compute_90]")
  if(TANDEM_WARNINGS_AS_ERRORS)
    list(APPEND flags -Werror=all-warnings)
  endif()
  foreach(source ${ARGN})
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${source}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${TANDEM_NVCC} ${flags} -I${PROJECT_SOURCE_DIR} -MD -MF ${object}.d -MT ${object}
              -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d VERBATIM COMMENT "Building CUDA object ${folder}/${source}.o")
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    target_sources(${target} PRIVATE ${object})
  endforeach()
endfunction()

# For Tandem's own kernels, which a GPU cannot do without.
if(TANDEM_CUDA)
  find_program(TANDEM_NVCC nvcc PATHS /usr/local/cuda/bin DOC "The CUDA compiler of Tandem's own kernels")
  if(NOT TANDEM_NVCC)
    message(FATAL_ERROR "TANDEM_CUDA=ON needs nvcc, CUDA's compiler: install the CUDA toolkit, or name nvcc with "
                        "-DTANDEM_NVCC")
  endif()
endif()
