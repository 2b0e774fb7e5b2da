# What comes from the distribution, and the CUDA headers. Nothing links libcuda, NVRTC or nvJitLink.

# LLVM's own configuration looks for C libraries (libedit, zlib).
enable_language(C)
find_package(Threads REQUIRED)
find_package(LLVM 19.1 REQUIRED CONFIG)
find_package(TBB REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
if(KERNWRIGHT_TESTS OR KERNWRIGHT_BENCHES)
  find_package(ZLIB REQUIRED)
endif()
if(KERNWRIGHT_TESTS)
  find_package(GTest 1.12 REQUIRED)
endif()
if(KERNWRIGHT_BENCHES)
  find_package(benchmark REQUIRED)
endif()

# For bundles: linked statically where they can be, so that bundles can be installed on a machine
# without them; Debian's shared libarchive would bring 40 MB of Unicode tables along. What libarchive
# has beside tar and zstd refers to six more libraries, and goes with its sections.
set(bundle_libraries "")
foreach(name archive sodium zstd)
  find_library(KERNWRIGHT_LIB_${name} NAMES lib${name}.a ${name} DOC "Library ${name}")
  if(NOT KERNWRIGHT_LIB_${name})
    message(FATAL_ERROR "no lib${name}: install libarchive-dev, libsodium-dev and libzstd-dev, or "
      "run src/cmake/setup.sh")
  endif()
  list(APPEND bundle_libraries ${KERNWRIGHT_LIB_${name}})
endforeach()
add_library(kernwright_bundles INTERFACE)
target_link_libraries(kernwright_bundles INTERFACE ${bundle_libraries})
target_link_options(kernwright_bundles INTERFACE -Wl,--gc-sections)

# libSupport alone; linked by the support layer, and by the command line for its option parser.
add_library(kernwright_llvm INTERFACE)
target_include_directories(kernwright_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
target_link_libraries(kernwright_llvm INTERFACE LLVMSupport)

# The headers: from a toolkit, or from the wheels that setup.sh unpacked in the build folder.
find_path(KERNWRIGHT_CUDA_INCLUDE cuda.h
  HINTS $ENV{KERNWRIGHT_CUDA_PATH} $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda
        ${PROJECT_SOURCE_DIR}/build/cuda/nvidia/cu13
  PATH_SUFFIXES include
  DOC "Folder with cuda.h, nvrtc.h and nvJitLink.h")
if(NOT KERNWRIGHT_CUDA_INCLUDE)
  message(FATAL_ERROR "no cuda.h: install a CUDA Toolkit, set CUDA_HOME, or run src/cmake/setup.sh, "
    "which unpacks NVIDIA's wheels in build/cuda")
endif()
add_library(kernwright_cuda_headers INTERFACE)
target_include_directories(kernwright_cuda_headers SYSTEM INTERFACE ${KERNWRIGHT_CUDA_INCLUDE})
