#include "tuner/worker/protocol.h"

#include <gtest/gtest.h>

namespace kernwright::detail {
namespace {

TEST(ProtocolTest, WhatACompileIsLinkedWithArrivesByteForByte) {
  std::string every_byte;
  for (int i = 0; i < 256; ++i) every_byte += static_cast<char>(i);
  CompileRequest request;
  request.name = "matmul/reference.cu";
  request.target = "sm_90";
  request.linked.push_back({"epilogue", every_byte});
  const Result<Reply> reply = parse_reply(encode(Reply{CompileReply{request}}));
  ASSERT_TRUE(reply) << reply.error().message;
  const auto& read = std::get<CompileReply>(reply->content).request;
  ASSERT_EQ(read.linked.size(), 1U);
  EXPECT_EQ(read.linked[0].name, "epilogue");
  EXPECT_EQ(read.linked[0].lto_ir, every_byte);
  EXPECT_EQ(read.digest({}), request.digest({}));
}

TEST(ProtocolTest, AProblemIsOpenedWithItsFunctions) {
  OpenRequest open;
  open.problem = "vector_add n=8 dtype=bf16";
  open.functions = {"/functions/clamp.cu"};
  const Result<Request> request = parse_request(encode(Request{open}));
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(std::get<OpenRequest>(*request).functions, open.functions);
}

}  // namespace
}  // namespace kernwright::detail
