# cmake --install: the tool, the shared library, the public headers and the CMake package.
install(TARGETS kernwright EXPORT kernwright_targets)
