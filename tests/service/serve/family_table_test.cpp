#include "service/serve/family_table.h"

#include <atomic>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "support/text.h"
#include "tests/model/built_in_catalog.h"
#include "tests/results.h"
#include <kernwright/problem.h>

namespace kernwright {
namespace {

Problem written(std::string_view text) { return must(Problem::parse(text)); }

class FamilyTableTest : public ::testing::Test {
 protected:
  /// Learns a problem and publishes its family, which has no kernels.
  std::shared_ptr<const Family> publish(std::string_view text) {
    const BoundProblem problem = must(catalog().bind(written(text)));
    table_.learn(written(text), problem);
    auto family = std::make_shared<Family>(Family{.example = problem});
    for (const auto& [name, size] : problem.problem().dims()) {
      for (const Dim& dim : problem.operation().dims) {
        if (dim.name == name && dim.match == DimMatch::bucket) family->free.push_back({name});
      }
    }
    table_.publish(family);
    return family;
  }
  /// Returns the sizes with which a problem finds the family; none if it does not.
  std::vector<std::int64_t> sizes(std::string_view text, const Family& family) const {
    const auto found = table_.find(written(text));
    if (!found || found->family != &family) return {};
    return {found->sizes.values().begin(), found->sizes.values().end()};
  }
  static std::shared_ptr<const SizedKernel> sized(const FamilyTable::Found& found) {
    return std::make_shared<const SizedKernel>(*found.family, found.sizes, 0,
                                               std::weak_ptr<ServiceCore>());
  }

  FamilyTable table_{catalog()};
};

using Sizes = std::vector<std::int64_t>;

TEST_F(FamilyTableTest, ProblemsThatDifferInFreeSizesFindTheFamily) {
  const auto family = publish("matmul m=400 n=512 k=64 dtype=bf16");
  EXPECT_EQ(sizes("matmul m=400 n=512 k=64 dtype=bf16", *family), Sizes{400});
  EXPECT_EQ(sizes("matmul m=5000 n=512 k=64 dtype=bf16", *family), Sizes{5000});
  for (const std::string_view other :
       {"matmul m=128 n=512 k=64 dtype=bf16", "matmul m=400 n=513 k=64 dtype=bf16",
        "matmul m=400 n=512 k=64 dtype=fp16", "matmul m=400 n=512 k=64 dtype=bf16 bias=column",
        "matmul m=0 n=512 k=64 dtype=bf16", "rmsnorm rows=400 columns=64 dtype=bf16",
        "matmul m=400 k=64 n=512 dtype=bf16", "nothing m=400 n=512 k=64 dtype=bf16"}) {
    EXPECT_EQ(sizes(other, *family), Sizes{}) << other;
  }
}

TEST_F(FamilyTableTest, EverySpellingThatWasLearntFindsIt) {
  const auto family = publish("matmul m=400 n=512 k=64 dtype=bf16");
  const std::string_view other = "matmul k=64 n=512 m=300 dtype=bf16 bias=none";
  EXPECT_EQ(sizes(other, *family), Sizes{});
  table_.learn(written(other), must(catalog().bind(written(other))));
  EXPECT_EQ(sizes("matmul k=64 n=512 m=301 dtype=bf16 bias=none", *family), Sizes{301});
}

TEST_F(FamilyTableTest, ADimThatIsWrittenWithItsDefaultIsNotLearnt) {
  const auto family = publish("matmul m=400 n=512 k=64 dtype=bf16");
  const std::string_view other = "matmul m=400 n=512 k=64 lda=64 dtype=bf16";
  table_.learn(written(other), must(catalog().bind(written(other))));
  EXPECT_EQ(sizes(other, *family), Sizes{});
}

TEST_F(FamilyTableTest, SeveralSizesAreFoundInTheOrderOfTheFamily) {
  const auto family = publish(
      "attention batch=20 heads=4 q_len=1 kv_len=600 kv_total=3000 head_dim=64 lengths=kv "
      "dtype=bf16");
  EXPECT_EQ(sizes("attention batch=21 heads=4 q_len=1 kv_len=601 kv_total=3001 head_dim=64 "
                  "lengths=kv dtype=bf16",
                  *family),
            (Sizes{21, 1, 601, 3001}));
}

TEST_F(FamilyTableTest, WhatIsForgottenIsFoundOnceItIsPublishedAgain) {
  const std::string_view text = "vector_add n=4096 dtype=bf16";
  const auto first = publish(text);
  table_.forget(must(catalog().bind(written(text))));
  EXPECT_FALSE(table_.find(written(text)));
  const auto second = publish(text);
  EXPECT_EQ(sizes(text, *second), Sizes{4096});
}

TEST_F(FamilyTableTest, KernelsAreKeptOfTheLastSizesOfTheFamilyThatIsPublished) {
  publish("vector_add n=4096 dtype=bf16");
  const auto found = table_.find(written("vector_add n=77 dtype=bf16"));
  ASSERT_TRUE(found);
  int made = 0;
  const auto make = [&] { return ++made, sized(*found); };
  const auto kernel = FamilyTable::kernel(*found, make);
  EXPECT_EQ(FamilyTable::kernel(*found, make), kernel);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(FamilyTable::kernel(*found, [] { return std::shared_ptr<const SizedKernel>(); }),
            kernel);
  publish("vector_add n=4096 dtype=bf16");
  const auto again = table_.find(written("vector_add n=77 dtype=bf16"));
  EXPECT_EQ(FamilyTable::kernel(*again, [] { return std::shared_ptr<const SizedKernel>(); }),
            nullptr)
      << "it is of another family, and null is not kept";
  EXPECT_NE(FamilyTable::kernel(*again, [&] { return sized(*again); }), kernel);
}

TEST_F(FamilyTableTest, ReadersFindWhatIsLearntMeanwhile) {
  const auto family = publish("matmul m=400 n=512 k=64 dtype=bf16");
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&, i] {
      for (std::int64_t m = 129; !stop; m = m < 5000 ? m + 1 + i : 129) {
        const auto found = table_.find(matmul({m, 512, 64}, DType::bf16));
        if (!found || found->sizes.values()[0] != m) {
          ++wrong;
          continue;
        }
        const auto kernel = FamilyTable::kernel(*found, [&] { return sized(*found); });
        if (!(kernel->sizes() == found->sizes)) ++wrong;
      }
    });
  }
  for (int n = 8; n < 800; n += 8) publish(concat("matmul m=400 n=", n, " k=64 dtype=fp16"));
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace kernwright
