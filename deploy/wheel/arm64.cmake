# Compiles what a release has for arm64 on another machine; packages of one version have the same headers for every
# processor. The libraries for arm64 are those of deploy/release/server_root, in /arm64, where that is, or else those of
# deploy/release/arm64_root.
include(${CMAKE_CURRENT_LIST_DIR}/../../.ci/arm64.cmake)
set(root /arm64)
if(NOT EXISTS ${root})
  get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/../../.tools/arm64_root ABSOLUTE)
endif()
set(CMAKE_FIND_ROOT_PATH ${root} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
set(ENV{PKG_CONFIG_LIBDIR} ${root}/usr/lib/aarch64-linux-gnu/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${root})
set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES ${root}/usr/include/aarch64-linux-gnu)
set(libraries ${root}/usr/lib/aarch64-linux-gnu:${root}/lib/aarch64-linux-gnu)
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-rpath-link,${libraries})
set(CMAKE_SHARED_LINKER_FLAGS_INIT -Wl,-rpath-link,${libraries})
