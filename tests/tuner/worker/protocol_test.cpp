#include "tuner/worker/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <utility>

#include "tests/results.h"

namespace kernwright::detail {
namespace {

using ::testing::HasSubstr;

TEST(ProtocolTest, WhatACompileIsLinkedWithArrivesByteForByte) {
  std::string every_byte;
  for (int i = 0; i < 256; ++i) every_byte += static_cast<char>(i);
  CompileRequest request;
  request.name = "matmul/reference.cu";
  request.target = "sm_90";
  request.linked.push_back({"epilogue", every_byte});
  const Reply reply = must(parse_reply(encode(Reply{CompileReply{request}})));
  const auto& read = std::get<CompileReply>(reply.content).request;
  ASSERT_EQ(read.linked.size(), 1U);
  EXPECT_EQ(read.linked[0].name, "epilogue");
  EXPECT_EQ(read.linked[0].lto_ir, every_byte);
  EXPECT_EQ(read.digest({}), request.digest({}));
}

TEST(ProtocolTest, AProblemIsOpenedWithItsFunctions) {
  OpenRequest open;
  open.problem = "vector_add n=8 dtype=bf16";
  open.functions = {"/functions/clamp.cu"};
  const Request request = must(parse_request(encode(Request{open})));
  EXPECT_EQ(std::get<OpenRequest>(request).functions, open.functions);
}

TEST(ProtocolTest, WhatIsNoMessageIsCorruptAndNamesItsField) {
  const auto request = [](std::string_view text) {
    const Result<Request> read = parse_request(text);
    EXPECT_TRUE(read || read.error().code == ErrorCode::corrupt) << text;
    return read ? "read" : read.error().message;
  };
  const auto reply = [](std::string_view text) {
    const Result<Reply> read = parse_reply(text);
    EXPECT_TRUE(read || read.error().code == ErrorCode::corrupt) << text;
    return read ? "read" : read.error().message;
  };
  for (const char* text :
       {"", "{}", "[]", "{\"request\": 3}", "{\"request\": \"check\"}", "\xff"}) {
    EXPECT_NE(request(text), "read") << text;
    EXPECT_NE(reply(text), "read") << text;
  }
  EXPECT_THAT(request(R"({"request": "leave"})"), HasSubstr("\"leave\" is unknown"));
  EXPECT_THAT(request(R"({"request": "check", "id": 1, "depth": "deep"})"),
              HasSubstr("\"deep\" is none of screening, finalist"));
  OpenRequest open;
  std::string text = encode(Request{open});
  text.replace(text.find("l2=cold"), 7, "l2=cool");
  EXPECT_THAT(request(text), HasSubstr("is no measure policy"));
  const auto changed = [&](AnyReply content, std::string_view from, std::string_view to) {
    std::string encoded = encode(Reply{std::move(content)});
    encoded.replace(encoded.find(from), from.size(), to);
    return reply(encoded);
  };
  EXPECT_THAT(changed(AuditReply{Audit{{{"mig", Trust::b, "on"}}}}, "\"B\"", "\"D\""),
              HasSubstr("\"D\" is none of A, B, C"));
  EXPECT_THAT(changed(PrepareReply{{3, {Outcome::spilled, "8"}}}, "spilled", "soaked"),
              HasSubstr("\"soaked\" is none of ok, rejected"));
}

TEST(ProtocolTest, AnErrorArrivesWithItsCode) {
  const Reply read =
      must(parse_reply(encode(Reply{ErrorReply{{ErrorCode::timed_out, "too long"}}, true})));
  EXPECT_TRUE(read.lost);
  EXPECT_EQ(std::get<ErrorReply>(read.content).error.code, ErrorCode::timed_out);
  EXPECT_EQ(std::get<ErrorReply>(read.content).error.message, "too long");
}

}  // namespace
}  // namespace kernwright::detail
