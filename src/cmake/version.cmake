# Writes OUTPUT, the definitions of support/version.h, when they differ from what is there.
set(commit unknown)
find_program(git git)
if(git)
  execute_process(COMMAND ${git} -C ${SOURCE_DIR} rev-parse --short=12 HEAD
    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    set(commit ${head})
  endif()
endif()
set(text "#include \"support/version.h\"

namespace kernwright {
std::string_view kernwright_version() { return \"${VERSION}\"; }
std::string_view kernwright_commit() { return \"${commit}\"; }
}  // namespace kernwright
")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
