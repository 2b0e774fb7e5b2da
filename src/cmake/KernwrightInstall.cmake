# cmake --install gives the tool, the shared library, the public headers, packages for CMake and
# pkg-config, and, in share/kernwright, the templates, the examples and the documents.
include(CMakePackageConfigHelpers)
add_custom_target(installed DEPENDS kernwright kernwright_cli)

set_target_properties(kernwright PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS kernwright EXPORT kernwright_targets)
set_target_properties(kernwright_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
install(TARGETS kernwright_cli)
install(DIRECTORY src/kernwright/ DESTINATION include/kernwright FILES_MATCHING PATTERN *.h)
set(package_folder lib/cmake/kernwright)
install(EXPORT kernwright_targets NAMESPACE kernwright:: DESTINATION ${package_folder}
  FILE kernwrightConfig.cmake)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kernwrightConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kernwrightConfigVersion.cmake DESTINATION ${package_folder})

configure_file(src/cmake/kernwright.pc.in kernwright.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/kernwright.pc DESTINATION lib/pkgconfig)

# The documents lie as they do in the source, so that what they say of each other holds.
set(share share/kernwright)
install(DIRECTORY templates DESTINATION ${share})
install(DIRECTORY src/examples/ DESTINATION ${share}/src/examples USE_SOURCE_PERMISSIONS
  PATTERN __pycache__ EXCLUDE)
install(FILES README.md ARCHITECTURE.md CONTRIBUTING.md LICENSE DESTINATION ${share})
install(DIRECTORY src/docs/pages DESTINATION ${share}/src/docs)
install(DIRECTORY src/python/data DESTINATION ${share}/src/python PATTERN __pycache__ EXCLUDE
  PATTERN bundles EXCLUDE)
foreach(folder cache src/cli src/python tuner
  bench/results/cpu bench/results/h100 bench/results/h200 bench/results/simulation)
  install(FILES ${folder}/README.md DESTINATION ${share}/${folder})
endforeach()
