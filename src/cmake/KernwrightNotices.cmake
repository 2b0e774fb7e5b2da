# kernwright_notices(FOLDER COMPONENTS... TARGETS ...) installs THIRD_PARTY_NOTICES in FOLDER with each
# component: the licenses of all that the linker took for the targets, and of headers that hold code.
set(CMAKE_LINK_DEPENDS_USE_LINKER OFF)  # which would write the linker's list elsewhere

function(kernwright_notices folder)
  cmake_parse_arguments(arg "" "" "COMPONENTS;TARGETS" ${ARGN})
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  list(GET arg_COMPONENTS 0 name)
  set(notices ${PROJECT_BINARY_DIR}/notices/${name})
  file(MAKE_DIRECTORY ${notices})
  set(lists "")
  foreach(target IN LISTS arg_TARGETS)
    target_link_options(${target} PRIVATE -Wl,--dependency-file=${notices}/${target}.link.d)
    list(APPEND lists ${notices}/${target}.link.d)
  endforeach()
  get_target_property(json nlohmann_json::nlohmann_json INTERFACE_INCLUDE_DIRECTORIES)
  list(GET json 0 json)
  list(JOIN lists "\" \"" lists)
  foreach(component IN LISTS arg_COMPONENTS)
    install(CODE "execute_process(COMMAND \"${Python3_EXECUTABLE}\"
      \"${PROJECT_SOURCE_DIR}/src/cmake/notices.py\" \"${notices}/THIRD_PARTY_NOTICES\"
      \"${json}/nlohmann/json.hpp\" \"${lists}\" COMMAND_ERROR_IS_FATAL ANY)"
      COMPONENT ${component} EXCLUDE_FROM_ALL)
    install(FILES ${notices}/THIRD_PARTY_NOTICES DESTINATION ${folder} COMPONENT ${component}
      EXCLUDE_FROM_ALL)
  endforeach()
endfunction()
