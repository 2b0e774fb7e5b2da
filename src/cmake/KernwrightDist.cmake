# The dist target gives what is installed, with the libraries it needs, as an archive for any machine,
# and tests, benches and examples as a second one, to be unpacked in the same place. The folder has
# both. libstdc++ is in neither: a second copy in a process that has one already (PyTorch's, say)
# breaks exceptions, and every system with glibc 2.36 has one that is new enough.
get_property(dist_targets GLOBAL PROPERTY kernwright_dist_targets)
if(NOT dist_targets)
  return()
endif()
set_target_properties(${dist_targets} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
# Component carried: the libraries of what is installed. Component dist: the rest, with its own.
install(TARGETS kernwright kernwright_cli COMPONENT carried EXCLUDE_FROM_ALL
  RUNTIME_DEPENDENCY_SET carried_dependencies)
install(TARGETS ${dist_targets} COMPONENT dist EXCLUDE_FROM_ALL
  RUNTIME_DEPENDENCY_SET dist_dependencies)
foreach(component carried dist)
  install(RUNTIME_DEPENDENCY_SET ${component}_dependencies COMPONENT ${component} EXCLUDE_FROM_ALL
    DESTINATION lib
    PRE_EXCLUDE_REGEXES "^(ld-linux|libc\\.|libm\\.|libdl\\.|librt\\.|libpthread\\.|libstdc\\+\\+|libgcc_s|libkernwright)"
    DIRECTORIES ${PROJECT_BINARY_DIR}/lib)
endforeach()
install(PROGRAMS src/cmake/run-gpu-tests.sh DESTINATION . COMPONENT dist EXCLUDE_FROM_ALL)
install(DIRECTORY bench/worklists DESTINATION share/kernwright COMPONENT dist EXCLUDE_FROM_ALL)
install(PROGRAMS bench/load_waits.py bench/vendor/attention_counters.py
  bench/vendor/attention_vs_peers.py bench/vendor/compiled_models.py bench/vendor/decode_step.py
  bench/vendor/grouped_vs_torch.py
  bench/vendor/model_decode.py bench/vendor/model_vs_torch.py bench/vendor/python_call.py
  bench/vendor/quantized_vs_peers.py bench/vendor/rows_vs_pytorch.py tests/build/leave_test.py tests/build/leaving_host.py
  DESTINATION share/kernwright COMPONENT dist EXCLUDE_FROM_ALL)
install(FILES bench/vendor/attention_peers.py bench/vendor/attention_problems.py
  bench/vendor/decode_models.py bench/vendor/python_call_loop.c bench/vendor/python_call_nothing.c
  bench/vendor/quantized_peers.py
  DESTINATION share/kernwright COMPONENT dist EXCLUDE_FROM_ALL)
install(FILES LICENSE DESTINATION . COMPONENT dist EXCLUDE_FROM_ALL)
kernwright_notices(. COMPONENTS carried dist TARGETS kernwright kernwright_cli ${dist_targets})

set(dist_name ${PROJECT_NAME}-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(dist_root ${PROJECT_SOURCE_DIR}/dist)
set(dist_folder ${dist_root}/${dist_name})
set(rest_root ${dist_root}/tests)
# An installation says a line for each file, which nobody reads here.
set(install_stripped sh -c "exec \"$0\" \"$@\" > /dev/null" ${CMAKE_COMMAND} --install
  ${PROJECT_BINARY_DIR} --strip)
add_custom_target(dist
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${dist_folder} ${rest_root}
          ${dist_folder}.tar.gz ${dist_folder}-tests.tar.gz
  COMMAND ${install_stripped} --prefix ${dist_folder}
  COMMAND ${install_stripped} --prefix ${dist_folder} --component carried
  COMMAND ${CMAKE_COMMAND} -E chdir ${dist_root}
          ${CMAKE_COMMAND} -E tar czf ${dist_name}.tar.gz ${dist_name}
  COMMAND ${install_stripped} --prefix ${rest_root}/${dist_name} --component dist
  COMMAND ${CMAKE_COMMAND} -E chdir ${rest_root}
          ${CMAKE_COMMAND} -E tar czf ../${dist_name}-tests.tar.gz ${dist_name}
  COMMAND ${CMAKE_COMMAND} -E copy_directory ${rest_root}/${dist_name} ${dist_folder}
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${rest_root}
  COMMAND ${CMAKE_COMMAND} -E echo "dist/${dist_name}.tar.gz and dist/${dist_name}-tests.tar.gz"
  DEPENDS kernwright kernwright_cli ${dist_targets}
  VERBATIM)
