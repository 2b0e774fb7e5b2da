# The dist target gives what is installed, with tests, benches and examples and the libraries they
# need, as a folder for any machine. libstdc++ is not in it: a second copy in a process that has one already
# (PyTorch's, say) breaks exceptions, and every system with glibc 2.36 has one that is new enough.
get_property(dist_targets GLOBAL PROPERTY kernwright_dist_targets)
if(NOT dist_targets)
  return()
endif()
set_target_properties(${dist_targets} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
install(TARGETS ${dist_targets} COMPONENT dist EXCLUDE_FROM_ALL
  RUNTIME_DEPENDENCY_SET dist_dependencies)
install(RUNTIME_DEPENDENCY_SET dist_dependencies COMPONENT dist EXCLUDE_FROM_ALL
  DESTINATION lib
  PRE_EXCLUDE_REGEXES "^(ld-linux|libc\\.|libm\\.|libdl\\.|librt\\.|libpthread\\.|libstdc\\+\\+|libgcc_s|libkernwright)"
  DIRECTORIES ${PROJECT_BINARY_DIR}/lib)
install(PROGRAMS src/cmake/run-gpu-tests.sh DESTINATION . COMPONENT dist EXCLUDE_FROM_ALL)
install(DIRECTORY bench/worklists DESTINATION share/kernwright COMPONENT dist EXCLUDE_FROM_ALL)
install(PROGRAMS bench/tune_vs_exhaustive.py
  bench/vendor/decode_step.py bench/vendor/rows_vs_pytorch.py bench/vendor/tuning_curve.py
  DESTINATION share/kernwright COMPONENT dist EXCLUDE_FROM_ALL)
install(FILES LICENSE DESTINATION . COMPONENT dist EXCLUDE_FROM_ALL)

set(dist_name ${PROJECT_NAME}-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(dist_folder ${PROJECT_SOURCE_DIR}/dist/${dist_name})
add_custom_target(dist
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${dist_folder} ${dist_folder}.tar.gz
  COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --strip --prefix ${dist_folder}
  COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --strip --prefix ${dist_folder}
          --component dist
  COMMAND ${CMAKE_COMMAND} -E chdir ${PROJECT_SOURCE_DIR}/dist
          ${CMAKE_COMMAND} -E tar czf ${dist_name}.tar.gz ${dist_name}
  COMMAND ${CMAKE_COMMAND} -E echo "dist/${dist_name}.tar.gz"
  DEPENDS kernwright kernwright_cli ${dist_targets}
  VERBATIM)
