#pragma once

#include <string>
#include <string_view>

#include "compile/compiler.h"
#include <kernwright/result.h>

/// What a compile process is told, and what it answers, as the bytes of one message each.
namespace kernwright::detail {

/// The first message of a compile process. It names the build, because both sides must come from
/// one.
std::string compile_greeting();

struct CompileOrder {
  ToolkitFiles files;
  CompileRequest request;
};

std::string encode(const CompileOrder& order);
std::string encode(const Result<CompiledKernel>& answer);

/// Errors: `corrupt`.
Result<CompileOrder> decode_order(std::string_view bytes);
/// Errors: those that were encoded; `corrupt`.
Result<CompiledKernel> decode_answer(std::string_view bytes);

}  // namespace kernwright::detail
