#include <algorithm>
#include <charconv>

#include "model/operation/problem_length.h"
#include "support/text.h"
#include "support/try.h"
#include <kernwright/problem.h>

namespace kernwright {

Result<void> check_problem_length(std::size_t bytes) {
  if (bytes <= kLongestProblem) return {};
  return Error{ErrorCode::invalid_argument,
               concat("a problem of ", bytes, " bytes; it may have ", kLongestProblem)};
}

Problem Problem::make(std::string operation, Dims dims, Flags flags) {
  Problem problem;
  problem.operation_ = std::move(operation);
  problem.dims_ = std::move(dims);
  problem.flags_ = std::move(flags);
  return problem;
}

Result<Problem> Problem::parse(std::string_view text) {
  KW_TRY(check_problem_length(text.size()));
  Problem problem;
  for (std::string_view word : split(text, ' ')) {
    word = trim(word);
    if (word.empty()) continue;
    if (problem.operation_.empty()) {
      if (word.find('=') != std::string_view::npos) {
        return Error{ErrorCode::invalid_argument,
                     concat("\"", word, "\": expected the operation's name first")};
      }
      problem.operation_ = word;
      continue;
    }
    const std::size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
    if (!is_identifier(name) || value.empty()) {
      return Error{
          ErrorCode::invalid_argument,
          concat("\"", word, "\" is not name=value; a value, such as a formula, has no spaces")};
    }
    if (value.find_first_not_of("0123456789") != std::string_view::npos) {
      problem.flags_.emplace_back(name, value);
      continue;
    }
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), size);
    if (error != std::errc() || end != value.data() + value.size()) {
      return Error{ErrorCode::invalid_argument, concat("\"", word, "\" does not fit 64 bits")};
    }
    problem.dims_.emplace_back(name, size);
  }
  if (problem.operation_.empty()) {
    return Error{ErrorCode::invalid_argument, "expected OPERATION name=value ..., found nothing"};
  }
  return problem;
}

Problem Problem::with(std::string name, std::string value) const {
  Problem changed = *this;
  const auto flag = std::find_if(changed.flags_.begin(), changed.flags_.end(),
                                 [&](const auto& entry) { return entry.first == name; });
  if (flag != changed.flags_.end()) {
    flag->second = std::move(value);
  } else {
    changed.flags_.emplace_back(std::move(name), std::move(value));
  }
  return changed;
}

std::string Problem::text() const {
  std::string text = operation_;
  for (const auto& [name, size] : dims_) text += concat(" ", name, "=", size);
  for (const auto& [name, value] : flags_) text += concat(" ", name, "=", value);
  return text;
}

Problem matmul(MatmulSize size, DType dtype) {
  return Problem::make("matmul", {{"m", size.m}, {"n", size.n}, {"k", size.k}},
                       {{"dtype", std::string(to_string(dtype))}});
}

Problem rmsnorm(std::int64_t rows, std::int64_t columns, DType dtype) {
  return Problem::make("rmsnorm", {{"rows", rows}, {"columns", columns}},
                       {{"dtype", std::string(to_string(dtype))}});
}

Problem vector_add(std::int64_t n, DType dtype) {
  return Problem::make("vector_add", {{"n", n}}, {{"dtype", std::string(to_string(dtype))}});
}

}  // namespace kernwright
