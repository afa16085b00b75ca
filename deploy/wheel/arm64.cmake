# Compiles the parts of the wheel for arm64 on another machine; packages of one version have the same headers for every
# processor. The server's libraries for arm64 are in /arm64 (see deploy/release/server_root). Where that is missing, objects
# alone are compiled, of the library, and CMake finds the machine's packages.
include(${CMAKE_CURRENT_LIST_DIR}/../../.ci/arm64.cmake)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
if(EXISTS /arm64)
  set(CMAKE_FIND_ROOT_PATH /arm64 /usr/aarch64-linux-gnu)
  set(ENV{PKG_CONFIG_LIBDIR} /arm64/usr/lib/aarch64-linux-gnu/pkgconfig)
  set(ENV{PKG_CONFIG_SYSROOT_DIR} /arm64)
  set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES /arm64/usr/include/aarch64-linux-gnu)
  set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-rpath-link,/arm64/usr/lib/aarch64-linux-gnu)
else()
  set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY BOTH)
  set(CMAKE_LIBRARY_PATH /usr/lib/x86_64-linux-gnu)
  set(CMAKE_PREFIX_PATH /usr/lib/x86_64-linux-gnu/cmake)
endif()
