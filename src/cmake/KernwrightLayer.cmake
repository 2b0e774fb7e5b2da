# kernwright_layer(<name> <dependency>...): the static library of the layer in the current folder,
# from all its .cpp files and what kernwright_embed() made for it. The dependencies are the layers
# below and libraries; tests/build/layering_test.py checks the includes against the same table.
function(kernwright_layer name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cpp)
  get_property(generated GLOBAL PROPERTY kernwright_${name}_generated)
  set(target kernwright_${name})
  add_library(${target} STATIC ${sources} ${generated})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PUBLIC ${ARGN} PRIVATE kernwright_warnings)
endfunction()
