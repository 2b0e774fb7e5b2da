#include "compile/compile_messages.h"

#include <gtest/gtest.h>
#include <string>
#include <string_view>

#include "tests/results.h"

namespace kernwright::detail {
namespace {

std::string every_byte() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  return bytes;
}

CompileOrder sample_order() {
  CompileOrder order;
  order.files = {"/lib/nvrtc", "/lib/nvjitlink"};
  order.request = {.name = "a.cu",
                   .source = "source",
                   .headers = {{"a.h", "first"}, {"b.h", ""}},
                   .options = {"--use_fast_math", "-DX=1"},
                   .target = "sm_90a",
                   .output = OutputKind::lto_ir,
                   .linked = {{"epilogue", every_byte()}}};
  return order;
}

CompiledKernel sample_kernel() {
  CompiledKernel kernel;
  kernel.bits = every_byte();
  kernel.output = OutputKind::lto_ir;
  kernel.target = "sm_90a";
  kernel.entries = {{"f", {1, 2, 3, 4, 5, 6}}, {"g", {}}};
  kernel.warnings = {"serialised", ""};
  kernel.log = "log";
  kernel.seconds = 0.25;
  return kernel;
}

TEST(CompileMessagesTest, AnOrderArrivesWhole) {
  const CompileOrder sent = sample_order();
  const CompileOrder read = must(decode_order(encode(sent)));
  EXPECT_EQ(read.files, sent.files);
  EXPECT_EQ(read.request.name, sent.request.name);
  EXPECT_EQ(read.request.linked.at(0).name, "epilogue");
  EXPECT_EQ(read.request.digest({}), sent.request.digest({}));
}

TEST(CompileMessagesTest, AnAnswerArrivesWhole) {
  const CompiledKernel sent = sample_kernel();
  const CompiledKernel read = must(decode_answer(encode(Result<CompiledKernel>(sent))));
  EXPECT_EQ(read.bits, sent.bits);
  EXPECT_EQ(read.output, sent.output);
  EXPECT_EQ(read.target, sent.target);
  ASSERT_EQ(read.entries.size(), 2U);
  EXPECT_EQ(read.entries[0].name, "f");
  EXPECT_EQ(read.entries[0].resources, sent.entries[0].resources);
  EXPECT_EQ(read.warnings, sent.warnings);
  EXPECT_EQ(read.log, sent.log);
  EXPECT_EQ(read.seconds, sent.seconds);
}

TEST(CompileMessagesTest, AnErrorArrivesAsItself) {
  EXPECT_THAT(decode_answer(encode(Result<CompiledKernel>(Error{ErrorCode::compile, "line 3"}))),
              Fails(ErrorCode::compile, "line 3"));
}

TEST(CompileMessagesTest, WhatIsCutOffOrTooLongIsCorrupt) {
  const std::string order = encode(sample_order());
  const std::string answer = encode(Result<CompiledKernel>(sample_kernel()));
  for (std::size_t length = 0; length < order.size(); ++length) {
    ASSERT_EQ(decode_order(order.substr(0, length)).error().code, ErrorCode::corrupt) << length;
  }
  for (std::size_t length = 0; length < answer.size(); ++length) {
    ASSERT_EQ(decode_answer(answer.substr(0, length)).error().code, ErrorCode::corrupt) << length;
  }
  EXPECT_EQ(decode_order(order + "x").error().code, ErrorCode::corrupt);
  EXPECT_EQ(decode_answer(answer + "x").error().code, ErrorCode::corrupt);
}

}  // namespace
}  // namespace kernwright::detail
