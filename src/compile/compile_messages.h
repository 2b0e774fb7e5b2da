#pragma once

#include <string>
#include <string_view>

#include "compile/compiler.h"
#include <kernwright/result.h>

/// The orders to a compile process and its answers, as the bytes of one message each.
namespace kernwright::detail {

/// Returns the first message of a compile process. It names the build, because both sides must come
/// from one.
std::string compile_greeting();

struct CompileOrder {
  ToolkitFiles files;
  CompileRequest request;
};

std::string encode(const CompileOrder& order);
std::string encode(const Result<CompiledKernel>& answer);

/// Undoes `encode`. Errors: `corrupt`.
Result<CompileOrder> decode_order(std::string_view bytes);
/// Undoes `encode`. Errors: the encoded one; `corrupt`.
Result<CompiledKernel> decode_answer(std::string_view bytes);

}  // namespace kernwright::detail
