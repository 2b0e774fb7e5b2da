#include "model/candidate/size_check.h"

#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "model/candidate/config_header.h"
#include "model/catalog/catalog.h"
#include "support/text.h"
#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"
#include "tests/results.h"

namespace kernwright {
namespace {

struct Free {
  std::string dim;
  std::int64_t most;
};

Problem with_sizes(const Problem& problem, const std::vector<Free>& free,
                   const std::vector<std::int64_t>& sizes) {
  Problem::Dims dims = problem.dims();
  for (std::size_t i = 0; i < free.size(); ++i) {
    for (auto& [name, size] : dims) {
      if (name == free[i].dim) size = sizes[i];
    }
  }
  return Problem::make(problem.operation(), dims, problem.flags());
}

/// Compares the check with `make_candidate` at random sizes, for the default configuration of each
/// template. Returns at how many sizes no candidate was valid.
int refused_sizes(const std::string& text, const std::vector<Free>& free) {
  const Problem problem = must(Problem::parse(text));
  const BoundProblem example = must(catalog().bind(problem));
  std::vector<std::string> names;
  for (const Free& one : free) names.push_back(one.dim);
  std::minstd_rand random(11);
  int refused = 0;
  int checked = 0;
  for (const KernelTemplate* of : catalog().templates_of(problem.operation())) {
    if (!applies(*of, example, h200())) continue;
    const Result<Candidate> made = make_candidate(*of, example, of->default_configuration, h200());
    if (!made || broken_habit(*made) != nullptr) continue;
    const SizeCheck check(*made, names);
    ++checked;
    for (int i = 0; i < 60; ++i) {
      std::vector<std::int64_t> sizes;
      for (const Free& one : free) {
        sizes.push_back(1 + static_cast<std::int64_t>(random()) % (i % 3 == 0 ? 64 : one.most));
      }
      const Result<BoundProblem> other = catalog().bind(with_sizes(problem, free, sizes));
      const bool holds = check.holds(sizes);
      if (!other) {
        EXPECT_FALSE(holds) << with_sizes(problem, free, sizes).text() << ": "
                            << other.error().message;
        continue;
      }
      const bool runs = applies(*of, *other, h200()).has_value();
      const Result<Candidate> there =
          make_candidate(*of, *other, of->default_configuration, h200());
      const bool same_bits = there && config_header(*there) == config_header(*made);
      if (there) {
        EXPECT_EQ(same_bits, bits_key(*there) == bits_key(*made))
            << of->name << ' ' << other->text();
      }
      const bool valid = runs && there && broken_habit(*there) == nullptr && same_bits;
      EXPECT_EQ(holds, valid) << of->name << " for " << other->text() << ": "
                              << (there ? "it can be made" : there.error().message);
      refused += valid ? 0 : 1;
    }
  }
  EXPECT_GT(checked, 0) << text;
  return refused;
}

TEST(SizeCheckTest, SaysWhatMakingTheCandidateSays) {
  int refused = 0;
  refused += refused_sizes("matmul m=400 n=6144 k=4096 dtype=bf16", {{"m", 9000}});
  refused += refused_sizes("matmul m=3 n=4096 k=14336 dtype=fp16", {{"m", 64}});
  refused += refused_sizes("rmsnorm rows=9 columns=4096 dtype=bf16", {{"rows", 100'000}});
  refused += refused_sizes(
      "attention batch=3 heads=16 kv_heads=4 q_len=1 kv_len=900 head_dim=128 dtype=bf16",
      {{"batch", 60}, {"q_len", 2000}, {"kv_len", 9000}});
  refused += refused_sizes(
      "attention batch=4 heads=8 q_len=1 kv_len=600 head_dim=64 lengths=kv dtype=bf16",
      {{"batch", 30}, {"q_len", 300}, {"kv_len", 5000}});
  refused += refused_sizes(
      "attention batch=4 heads=8 q_len=1 kv_len=600 kv_total=1500 head_dim=64 lengths=kv "
      "cache=paged pages=5000 dtype=bf16",
      {{"batch", 30}, {"kv_len", 5000}, {"kv_total", 30'000}, {"pages", 20'000}});
  EXPECT_GT(refused, 20) << "sizes that are refused are a part of the test";
}

TEST(SizeCheckTest, HoldsNotWhereBitsAreOthers) {
  // matmul/stream compiles the number of rows in, rounded up to a power of two.
  const auto at = [](std::int64_t m) {
    return must(
        catalog().bind(must(Problem::parse(concat("matmul m=", m, " n=4096 k=6144 dtype=fp16")))));
  };
  const KernelTemplate& stream = *must(catalog().kernel_template("matmul/stream"));
  const Candidate made = must(make_candidate(stream, at(3), stream.default_configuration, h200()));
  const SizeCheck check(made, std::vector<std::string>{"m"});
  const auto holds = [&](std::int64_t m) { return check.holds(std::vector{m}); };
  EXPECT_FALSE(holds(2));
  EXPECT_TRUE(holds(3));
  EXPECT_TRUE(holds(4));
  EXPECT_FALSE(holds(5));
  ASSERT_FALSE(check.compiled().empty());
  EXPECT_EQ(check.compiled().front(), std::pair(std::string("A_ROWS"), std::int64_t{4}));

  auto named = stream.default_configuration.values();
  named.push_back(check.compiled().front());
  EXPECT_TRUE(make_candidate(stream, at(4), Configuration(named), h200()));
  EXPECT_FALSE(make_candidate(stream, at(5), Configuration(named), h200()));
}

}  // namespace
}  // namespace kernwright
