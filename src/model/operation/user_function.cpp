#include "model/operation/user_function.h"

#include <algorithm>

#include "support/files.h"
#include "support/hash.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr FileKind kFunction{"function", std::uint64_t{16} << 20};

}  // namespace

Result<UserFunction> UserFunction::read(const std::filesystem::path& file) {
  const std::string extension = file.extension().native();
  if (extension != ".cu" && extension != ".ltoir") {
    return Error{ErrorCode::invalid_argument,
                 concat(file.native(), " ends in \"", extension,
                        "\", the file of a function in .cu (CUDA source) or .ltoir (LTO-IR)")};
  }
  UserFunction function;
  function.name = name_of(file);
  if (!is_identifier(function.name)) {
    return Error{ErrorCode::invalid_argument,
                 concat(file.native(), ": \"", function.name,
                        "\" is no identifier: problems call a function by the name of its file")};
  }
  if (is_digest(function.name)) {
    return Error{ErrorCode::invalid_argument,
                 concat(file.native(),
                        ": the name is written as a digest is, by which problems "
                        "find functions that were compiled before")};
  }
  KW_ASSIGN(std::string bytes, read_file(file, kFunction));
  function.is_lto_ir = extension == ".ltoir";
  function.bytes =
      function.is_lto_ir ? std::move(bytes) : std::string(without_byte_order_mark(bytes));
  function.digest = digest_of(function.bytes).hex();
  function.file = file.native();
  return function;
}

std::string UserFunction::name_of(const std::filesystem::path& file) {
  const std::string name = file.filename().native();
  return name.substr(0, name.find('.'));
}

bool UserFunction::is_digest(std::string_view text) {
  return text.size() == 2 * sizeof(Digest::bytes) &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace kernwright
