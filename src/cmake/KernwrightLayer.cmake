# kernwright_layer(<name> <dependency>...): the static library of the layer in the current folder,
# from all its .cpp files and what kernwright_embed() made for it; a folder in it with a
# CMakeLists.txt is a target of its own. The dependencies are the layers below and libraries;
# tests/build/layering_test.py checks the includes against the same table.
function(kernwright_layer name)
  set(here ${CMAKE_CURRENT_SOURCE_DIR})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${here} *.cpp)
  file(GLOB others RELATIVE ${here} */CMakeLists.txt)
  foreach(other IN LISTS others)
    get_filename_component(folder ${other} DIRECTORY)
    list(FILTER sources EXCLUDE REGEX "^${folder}/")
  endforeach()
  get_property(generated GLOBAL PROPERTY kernwright_${name}_generated)
  set(target kernwright_${name})
  add_library(${target} STATIC ${sources} ${generated})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PUBLIC ${ARGN} PRIVATE kernwright_warnings)
endfunction()
