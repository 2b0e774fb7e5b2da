#include "compile/includes.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

/// "kind:name@line" of all that is found, "?" for a name that a macro makes.
std::string found_in(std::string_view text) {
  std::string all;
  for (const Include& include : scan_includes(text).includes) {
    constexpr const char* kKinds[] = {"include", "asks", "embed"};
    all += (all.empty() ? "" : " ") + std::string(kKinds[static_cast<int>(include.kind)]) + ':' +
           (include.name.empty() ? "?" : include.name) + '@' + std::to_string(include.line);
  }
  return all;
}

CompileRequest request_with(std::string source) {
  CompileRequest request;
  request.name = "matmul/mine/kernel.cu";
  request.source = std::move(source);
  return request;
}

TEST(IncludesTest, DirectivesAreFoundHoweverTheyAreWritten) {
  EXPECT_EQ(found_in("#include \"a.h\"\n#include <b.h>"), "include:a.h@1 include:b.h@2");
  EXPECT_EQ(found_in(" \t# include_next  <b.h>"), "include:b.h@1");
  EXPECT_EQ(found_in("\n%:include \"a.h\""), "include:a.h@2");
  EXPECT_EQ(found_in("?\?=include \"a.h\""), "include:a.h@1");
  EXPECT_EQ(found_in("#import \"a.h\""), "include:a.h@1");
  EXPECT_EQ(found_in("/* \n */ # /* \n */ include /**/ \"a.h\""), "include:a.h@3");
  EXPECT_EQ(found_in("int x; /*\n*/#include \"a.h\""), "include:a.h@2");
  EXPECT_EQ(found_in("#inc\\\nlude \\\r\n \"a.\\\nh\"\n#include <b.h>"),
            "include:a.h@1 include:b.h@5");
  EXPECT_EQ(found_in("#include NAME"), "include:?@1");
  EXPECT_EQ(found_in("#include \"a.h\n"), "include:?@1") << "not closed on its line";
  EXPECT_EQ(found_in("#embed \"a.h\""), "embed:a.h@1");
}

TEST(IncludesTest, WhatACompilerMightSkipCounts) {
  EXPECT_EQ(found_in("#if 0\n#include \"a.h\"\n#endif"), "include:a.h@2");
  EXPECT_EQ(found_in("/*\n#include \"a.h\"\n*/"), "include:a.h@2");
  EXPECT_EQ(found_in("auto x = R\"(\n# /*\n)\";\n#include \"a.h\"\n/* */"), "include:a.h@4");
  EXPECT_EQ(found_in("#if 0\ndon't /*\n#endif\n#include \"a.h\""), "include:a.h@4");
  EXPECT_EQ(found_in("\"__has_include /*\";\n#include \"a.h\"\n/* */"), "asks:?@1 include:a.h@2");
}

TEST(IncludesTest, OtherTextIsNone) {
  EXPECT_EQ(found_in("// #include \"a.h\"\nint include; x = a # include;\n#define include 1\n"
                     "#includes \"a.h\"\n\"#include \\\"a.h\\\"\""),
            "");
}

TEST(IncludesTest, WhoAsksForAHeaderIsFoundToo) {
  EXPECT_EQ(found_in("#if __has_include(<a.h>) && __has_include_next ( \"b.h\")"),
            "asks:a.h@1 asks:b.h@1");
  EXPECT_EQ(found_in("#ifdef __has_include\n#if defined(__has_include)"), "");
  EXPECT_EQ(found_in("#define HAS __has_include"), "asks:?@1");
  EXPECT_EQ(found_in("#if _CCCL_HAS_INCLUDE(NAME)"), "asks:?@1");
}

TEST(IncludesTest, WhatTheRequestOffersIsNotForeign) {
  CompileRequest offering = request_with("#include <kernwright/a.cuh>\n#include <cuda_fp16.h>\n");
  offering.headers = {{"kernwright/a.cuh", "#include \"b.h\"\n#include <kernwright/a.cuh>\n"},
                      {"kernwright/unused.cuh", "#include \"/etc/passwd\"\n"}};
  const auto foreign = foreign_includes(offering);
  ASSERT_TRUE(foreign) << foreign.error().message;
  ASSERT_EQ(foreign->size(), 2U);
  EXPECT_EQ(foreign->at(0).name, "cuda_fp16.h");
  EXPECT_EQ(foreign->at(1).name, "b.h");
}

TEST(IncludesTest, AbsolutePathsAndNamesOfMacrosAreRefused) {
  const auto refusal = [](std::string source) {
    const auto foreign = foreign_includes(request_with(std::move(source)));
    EXPECT_FALSE(foreign);
    if (foreign) return std::string();
    EXPECT_EQ(foreign.error().code, ErrorCode::compile);
    return foreign.error().message;
  };
  EXPECT_EQ(refusal("\n#include \"/etc/passwd\"\n"),
            "matmul/mine/kernel.cu(2): #include of /etc/passwd: kernels may include kernwright's "
            "headers, files beside them and the toolkit's headers, never an absolute path");
  EXPECT_EQ(refusal("#define F \"x.h\"\n#include F\n"),
            "matmul/mine/kernel.cu(2): #include has to be followed by a name, not by a macro");
  EXPECT_EQ(refusal("#embed \"x.h\"\n"), "matmul/mine/kernel.cu(1): #embed is not supported");
  EXPECT_NE(refusal("#if __has_include(</etc/passwd>)\n#endif").find("(1): __has_include of /etc"),
            std::string::npos);
  EXPECT_NE(refusal("#define HAS __has_include\n").find("(1): __has_include has to be followed"),
            std::string::npos);
}

TEST(IncludesTest, APastedQuestionIsRefused) {
  const std::string pasting = "#define P(a, b) a##b\n#if P(__has_, include)(\"/etc/passwd\")\n";
  const auto foreign = foreign_includes(request_with(pasting));
  ASSERT_FALSE(foreign);
  EXPECT_NE(foreign.error().message.find("pastes __has_include"), std::string::npos);
  EXPECT_FALSE(foreign_includes(
      request_with("#define P(a, b) a##b\n#if P(__has_, /*\n*/ include)(\"/etc/passwd\")\n")));
  EXPECT_TRUE(
      foreign_includes(request_with("#define P(a, b) a##b\n#include <x.h>\nint P(_, x);\n")));
  EXPECT_TRUE(foreign_includes(
      request_with("#define P(a, b) a##b\nint _, h, a, s, i, n, c, l, u, d, e;\n")))
      << "what is in no directive is in no condition";
}

}  // namespace
}  // namespace kernwright
