# Writes OUTPUT, the definition of embedded_<NAME>() (model/files/embedded_files.h): the files in LIST, one
# path per line, named relative to FOLDER. Bytes, not string literals: exact, and of any length.
file(STRINGS ${LIST} files)
set(arrays "")
set(rows "")
set(index 0)
foreach(file IN LISTS files)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  file(RELATIVE_PATH path ${FOLDER} ${file})
  file(SIZE ${file} size)
  string(APPEND arrays "constexpr unsigned char kBytes${index}[] = {${bytes}0};\n")
  string(APPEND rows "      {\"${path}\", text(kBytes${index}, ${size})},\n")
  math(EXPR index "${index} + 1")
endforeach()
if(index EQUAL 0)
  set(body "  return {};\n")
else()
  set(body "  static const EmbeddedFile files[] = {\n${rows}  };\n  return files;\n")
endif()
file(WRITE ${OUTPUT} "#include \"model/files/embedded_files.h\"

namespace kernwright {
namespace {
[[maybe_unused]] std::string_view text(const unsigned char* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}
${arrays}}  // namespace

std::span<const EmbeddedFile> embedded_${NAME}() {
${body}}
}  // namespace kernwright
")
