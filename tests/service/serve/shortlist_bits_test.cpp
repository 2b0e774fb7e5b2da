// The kernels of a family whose bits hold values that follow from the size.

#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "model/candidate/candidate.h"
#include "support/text.h"
#include "tests/service/core_fixture.h"

namespace kernwright {
namespace {

TEST_F(ServiceCoreTest, EverySizeOfAFamilyHasTheBitsThatAreRightForIt) {
  // attention/stream compiles the number of queries in, as tiles.
  const auto at = [](std::int64_t queries) {
    return must(Problem::parse(concat("attention batch=2 heads=32 kv_heads=8 q_len=", queries,
                                      " kv_len=500 head_dim=128 dtype=bf16")));
  };
  shortlists_ = true;
  const auto core = open();
  ASSERT_TRUE(core->get_best_kernel(at(2)));
  core->wait_for_shortlists();
  int streams = 0;
  for (std::int64_t queries = 2; queries <= 16; ++queries) {
    const Result<Kernel> kernel = core->get_best_kernel(at(queries));
    ASSERT_TRUE(kernel) << kernel.error().message;
    const KernelSummary& served = kernel->summary();
    std::vector<std::pair<std::string, std::int64_t>> values;
    std::istringstream words(served.configuration);
    for (std::string word; words >> word;) {
      const std::size_t sign = word.find('=');
      values.emplace_back(word.substr(0, sign), std::stoll(word.substr(sign + 1)));
    }
    const Site& site = core->site();
    const Candidate candidate =
        must(make_candidate(*must(site.catalog->kernel_template(served.kernel_template)),
                            must(site.bind(at(queries))), Configuration(values), site.profile));
    EXPECT_EQ(served.artifact, must(core->builder().build(candidate)).digest)
        << served.configuration << " for " << at(queries).text();
    if (served.kernel_template == "attention/stream") ++streams;
  }
  EXPECT_GT(streams, 0) << "the case is about kernels with several bits";
}

}  // namespace
}  // namespace kernwright
