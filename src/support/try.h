#pragma once

#include <utility>

// What a function that gives a Result does with those of others: their errors are its own.

#define KW_JOIN_(a, b) a##b
#define KW_JOIN(a, b) KW_JOIN_(a, b)

/// Returns the error of a Result, whose value is not wanted.
#define KW_TRY(...) KW_TRY_AS(KW_JOIN(kw_result_, __COUNTER__), __VA_ARGS__)
#define KW_TRY_AS(name, ...)                                              \
  do {                                                                    \
    if (auto name = (__VA_ARGS__); !name) return std::move(name).error(); \
  } while (false)

/// Returns the error of a Result, or moves its value into `target`, which may be a declaration. Two
/// statements: it needs braces where one is meant.
#define KW_ASSIGN(target, ...) KW_ASSIGN_AS(KW_JOIN(kw_result_, __COUNTER__), target, __VA_ARGS__)
#define KW_ASSIGN_AS(name, target, ...)      \
  auto name = (__VA_ARGS__);                 \
  if (!name) return std::move(name).error(); \
  target = *std::move(name)
