#include "compile/compile_request.h"

#include <functional>
#include <gtest/gtest.h>

namespace kernwright {
namespace {

CompileRequest sample() {
  CompileRequest request;
  request.name = "sample/kernel.cu";
  request.source = "source";
  request.headers = {{"a.cuh", "text"}, {"b.cuh", "more"}};
  request.options = {"--maxrregcount=32", "-DX"};
  request.target = "sm_90a";
  return request;
}

TEST(CompileRequestTest, EveryPartThatTheResultDependsOnChangesTheDigest) {
  const std::vector<std::function<void(CompileRequest&)>> changes = {
      [](CompileRequest& r) { r.source += ' '; },
      [](CompileRequest& r) { r.headers[0].first = "c.cuh"; },
      [](CompileRequest& r) { r.headers[1].second = "less"; },
      [](CompileRequest& r) { r.headers.pop_back(); },
      [](CompileRequest& r) { r.options.pop_back(); },
      [](CompileRequest& r) { r.target = "sm_90"; },
      [](CompileRequest& r) { r.output = OutputKind::lto_ir; },
      [](CompileRequest& r) { r.linked.push_back({"function", "bytes"}); },
  };
  const Digest original = sample().digest("nvrtc 13.0");
  EXPECT_EQ(original, sample().digest("nvrtc 13.0"));
  EXPECT_NE(original, sample().digest("nvrtc 13.1"));
  for (std::size_t i = 0; i < changes.size(); ++i) {
    CompileRequest changed = sample();
    changes[i](changed);
    EXPECT_NE(original, changed.digest("nvrtc 13.0")) << "change " << i;
  }
}

TEST(CompileRequestTest, TheNameInMessagesIsNotPartOfTheDigest) {
  CompileRequest renamed = sample();
  renamed.name = "elsewhere/kernel.cu";
  EXPECT_EQ(renamed.digest("nvrtc"), sample().digest("nvrtc"));
}

TEST(CompileRequestTest, AdjacentFieldsDoNotRunTogether) {
  CompileRequest one = sample();
  CompileRequest other = sample();
  one.options = {"-DX", "-DY"};
  other.options = {"-DX-DY"};
  EXPECT_NE(one.digest("nvrtc"), other.digest("nvrtc"));
  one.headers = {{"a", "bc"}};
  other.headers = {{"ab", "c"}};
  EXPECT_NE(one.digest("nvrtc"), other.digest("nvrtc"));
}

TEST(CompiledKernelTest, ResourcesAreThoseOfTheWorstEntry) {
  CompiledKernel kernel;
  EXPECT_EQ(kernel.resources(), Resources{});
  kernel.entries = {{"many_registers", {.registers = 200}},
                    {"spills", {.registers = 32, .spill_store_bytes = 8}},
                    {"small", {.registers = 10}}};
  EXPECT_EQ(kernel.resources().spill_bytes(), 8);
  kernel.entries.erase(kernel.entries.begin() + 1);
  EXPECT_EQ(kernel.resources().registers, 200);
}

}  // namespace
}  // namespace kernwright
