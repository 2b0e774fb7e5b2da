#pragma once

#include <utility>

// For functions that return a Result: they return the error of a Result that they got.

#define KW_JOIN_(a, b) a##b
#define KW_JOIN(a, b) KW_JOIN_(a, b)

/// Returns the error of a Result, if it has one, and ignores its value.
#define KW_TRY(...) KW_TRY_AS(KW_JOIN(kw_result_, __COUNTER__), __VA_ARGS__)
#define KW_TRY_AS(name, ...)                                              \
  do {                                                                    \
    if (auto name = (__VA_ARGS__); !name) return std::move(name).error(); \
  } while (false)

/// Returns the error of a Result, or moves its value into `target`, which may be a declaration. It
/// expands to several statements, so a single statement needs braces around it.
#define KW_ASSIGN(target, ...) KW_ASSIGN_AS(KW_JOIN(kw_result_, __COUNTER__), target, __VA_ARGS__)
#define KW_ASSIGN_AS(name, target, ...)      \
  auto name = (__VA_ARGS__);                 \
  if (!name) return std::move(name).error(); \
  target = *std::move(name)
