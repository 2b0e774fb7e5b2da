# kernwright_embed(<layer> <name> <folder> <pattern>...): adds embedded_<name>() to the layer, a
# table of all files below the folder which match a pattern. To be called before kernwright_layer().
# A changed, new or removed file is seen by the next build.
function(kernwright_embed layer name folder)
  list(TRANSFORM ARGN PREPEND ${folder}/)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${ARGN})
  list(SORT files)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/embedded_${name}.cpp)
  # The list lies in a file of its own: its change is the removal of a file.
  set(list_file ${CMAKE_CURRENT_BINARY_DIR}/embedded_${name}.txt)
  list(JOIN files "\n" lines)
  file(CONFIGURE OUTPUT ${list_file} CONTENT "${lines}" @ONLY)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D OUTPUT=${output} -D NAME=${name} -D FOLDER=${folder}
            -D LIST=${list_file} -P ${PROJECT_SOURCE_DIR}/src/cmake/embed.cmake
    DEPENDS ${files} ${list_file} ${PROJECT_SOURCE_DIR}/src/cmake/embed.cmake
    COMMENT "Embedding ${name}"
    VERBATIM)
  # All such files name their arrays alike.
  set_source_files_properties(${output} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set_property(GLOBAL APPEND PROPERTY kernwright_${layer}_generated ${output})
endfunction()
