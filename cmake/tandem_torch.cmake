# The torch that Tandem is built with. Defines tandem::libtorch, tandem::libtorch_cuda if all its parts are found,
# TANDEM_TORCH (its folder) and TANDEM_TORCH_VERSION.
include(${CMAKE_CURRENT_LIST_DIR}/tandem_find_torch.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/tandem_torch_targets.cmake)

set(TANDEM_TORCH_DIR "$ENV{TANDEM_TORCH_DIR}" CACHE PATH "Folder of the torch wheel (holds include/ and lib/)")
tandem_find_torch(TANDEM_TORCH)
tandem_torch_version(TANDEM_TORCH_VERSION "${TANDEM_TORCH}")
if(TANDEM_TORCH_VERSION VERSION_LESS 2.11)
  if(NOT TANDEM_TORCH)
    set(_found "no torch at CMAKE_PREFIX_PATH, in .venv and by python3")
  elseif(NOT TANDEM_TORCH_VERSION)
    set(_found "no torch in ${TANDEM_TORCH} (from ${TANDEM_TORCH_FROM})")
  else()
    set(_found "torch ${TANDEM_TORCH_VERSION} in ${TANDEM_TORCH} (from ${TANDEM_TORCH_FROM}) is too old")
  endif()
  message(FATAL_ERROR "${_found}; wanted version 2.11 or newer. Install it with:\n"
                      "    python3 -m venv .venv && .venv/bin/pip install torch==2.11.0\n"
                      "or name a wheel's folder with -DTANDEM_TORCH_DIR=.../site-packages/torch")
endif()
message(STATUS "torch ${TANDEM_TORCH_VERSION}: ${TANDEM_TORCH} (from ${TANDEM_TORCH_FROM})")

tandem_torch_targets("${TANDEM_TORCH}")
tandem_torch_cuda_target("${TANDEM_TORCH}")
if(TANDEM_CUDA AND NOT TARGET tandem::libtorch_cuda)
  message(FATAL_ERROR "TANDEM_CUDA=ON needs torch's CUDA libraries, NCCL's and CUDA's headers beside ${TANDEM_TORCH}. "
                      "Install them with: .venv/bin/pip install -r tools/requirements-test.txt")
endif()
