# Compiler and output settings that hold for every target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

include(GNUInstallDirs)
set(CMAKE_INSTALL_LIBDIR lib)

# Where another project gives no folders the tool still lies where the library looks for it.
if(NOT CMAKE_RUNTIME_OUTPUT_DIRECTORY AND NOT CMAKE_LIBRARY_OUTPUT_DIRECTORY)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
endif()

if(PROJECT_IS_TOP_LEVEL)
  find_program(KERNWRIGHT_CCACHE ccache)
  if(KERNWRIGHT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${KERNWRIGHT_CCACHE})
  endif()
endif()

# Binaries move to other machines: no path of this one may stay in them. With no slash at the end
# ccache takes the build folder out of its key, so that all build folders share their compilations.
add_compile_options(
  -ffile-prefix-map=${PROJECT_SOURCE_DIR}=.
  -ffile-prefix-map=${PROJECT_BINARY_DIR}=build)

# LLVMSupport names libz3, libz and libzstd for parts of it that we never pull in.
add_link_options(-Wl,--as-needed)

add_library(kernwright_warnings INTERFACE)
target_compile_options(kernwright_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  # Clang blames us for what libstdc++ 12 does inside std::stable_sort.
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety -Wno-deprecated-declarations>
  # GCC 12 sees overlaps in std::string's operator+ that are not there (PR 105651).
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  $<$<BOOL:${KERNWRIGHT_WERROR}>:-Werror>)

if(KERNWRIGHT_SANITIZE)
  # Without the checks of every access, which are half of the time of a build: AddressSanitizer finds
  # most of what they would.
  add_compile_options(-fsanitize=${KERNWRIGHT_SANITIZE}
    -fno-sanitize=null,alignment,vptr,object-size -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${KERNWRIGHT_SANITIZE})
endif()
if(KERNWRIGHT_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "KERNWRIGHT_FUZZ needs Clang; the compiler is ${CMAKE_CXX_COMPILER_ID}")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
