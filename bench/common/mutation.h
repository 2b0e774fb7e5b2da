#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kernwright {

enum class MutationOperator { relation, arithmetic, off_by_one, dropped_statement };

std::string_view to_string(MutationOperator made_by);

/// One change of a CUDA source that may make it wrong.
struct Mutation {
  MutationOperator made_by = MutationOperator::relation;
  bool indexes = false;  ///< it is about which elements are taken, not what is computed of them
  std::size_t at = 0;    ///< the replaced text
  std::string find;
  std::string replace;
  int line = 0;  ///< from 1, as the column
  int column = 0;
};

/// Returns all changes of a source in the format of the project, whose binary operators alone have
/// spaces on both sides. Comments, directives, strings, assembly, static_assert and statements that
/// synchronise are left as they are: without these a result may be right by luck.
std::vector<Mutation> mutations_of_source(std::string_view source);

/// Returns all changes of the launches of a manifest.
std::vector<Mutation> mutations_of_manifest(std::string_view manifest);

}  // namespace kernwright
