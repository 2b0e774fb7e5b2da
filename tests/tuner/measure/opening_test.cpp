#include "tuner/measure/opening.h"

#include <gtest/gtest.h>
#include <map>

#include "model/catalog/catalog.h"

namespace kernwright {
namespace {

TEST(OpeningTest, RequestsTheOwnKernelsForEveryDtypeAndTheReference) {
  const auto catalog = Catalog::load({}).value();
  const auto problem =
      catalog->bind(*Problem::parse("matmul m=64 n=64 k=64 dtype=fp8_e4m3 out=bf16 scaling=alpha"));
  ASSERT_TRUE(problem) << problem.error().message;
  std::map<std::string, int> names;
  std::map<std::string, int> options;
  for (const CompileRequest& request : opening_requests(*problem, *catalog, 90)) {
    ++names[request.name];
    EXPECT_EQ(request.target.rfind("sm_90", 0), 0) << request.name;
    EXPECT_FALSE(request.source.empty()) << request.name;
    if (request.name == "tuner/data/kernels/data_ops.cu") ++options[request.options.back()];
  }
  EXPECT_EQ(names["tuner/data/kernels/data_ops.cu"], 2);
  EXPECT_EQ(options.size(), 2);
  EXPECT_EQ(names["tuner/data/kernels/probe.cu"], 1);
  EXPECT_EQ(names["tuner/data/kernels/empty.cu"], 1);
  EXPECT_EQ(names.size(), 4);  // and the operation's reference
}

}  // namespace
}  // namespace kernwright
