#include "examples/decode/safetensors.h"

#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "examples/decode/input.h"
#include "tests/temp_dir.h"

namespace decode {
namespace {

std::string bytes_of(const std::vector<float>& values) {
  std::string bytes(4 * values.size(), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string bytes_of(const Tensor& values) {
  std::string bytes(2 * values.size(), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

class SafetensorsTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (dir_.path() / name).string(); }

  /// A file with `header` as it is, and its length before it.
  std::string write(const std::string& name, const std::string& header, const std::string& data) {
    std::string length(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) {
      length[i] = static_cast<char>(static_cast<unsigned char>(header.size() >> (8 * i)));
    }
    std::ofstream(path(name), std::ios::binary) << length << header << data;
    return path(name);
  }

  std::string refusal(const std::string& header, const std::string& data = "") {
    const kw::Result<Safetensors> opened = Safetensors::open({write("wrong", header, data)});
    return opened ? "accepted" : opened.error().message.substr(path("wrong").size());
  }

  const kernwright::ScopedTempDir dir_;
};

TEST_F(SafetensorsTest, AllThreeTypesBecomeBf16) {
  const std::string file =
      write("model.safetensors",
            R"({"__metadata__": {"format": "pt"},
                "a": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]},
                "b": {"dtype": "F16", "shape": [4], "data_offsets": [8, 16]},
                "c": {"dtype": "F32", "shape": [3], "data_offsets": [16, 28]}}  )",
            bytes_of(Tensor{1, 2, 3, 0xffff}) +
                // 1, -2, 2^-24 and infinity in fp16
                bytes_of(Tensor{0x3c00, 0xc000, 0x0001, 0x7c00}) +
                // The second is half way to an odd number, the third half way to an even one.
                bytes_of(std::vector<float>{1, 1 + 1.0F / 256, 1 + 3.0F / 256}));
  const kw::Result<Safetensors> opened = Safetensors::open({file});
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(*opened->read("a", {2, 2}), (Tensor{1, 2, 3, 0xffff}));
  EXPECT_EQ(*opened->read("b", {4}), (Tensor{0x3f80, 0xc000, 0x3380, 0x7f80 | 0}));
  EXPECT_EQ(*opened->read("c", {3}), (Tensor{0x3f80, 0x3f80, 0x3f82}));
}

TEST_F(SafetensorsTest, AFolderIsReadByItsIndex) {
  write("one.safetensors", R"({"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}})",
        bytes_of(Tensor{5}));
  write("two.safetensors", R"({"b": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}})",
        bytes_of(Tensor{6}));
  kw::Result<Safetensors> opened = Safetensors::open({dir_.path().string()});
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(*opened->read("a", {1}), Tensor{5});
  EXPECT_EQ(*opened->read("b", {1}), Tensor{6});

  std::ofstream(path("model.safetensors.index.json"))
      << R"({"weight_map": {"b": "two.safetensors"}})";
  opened = Safetensors::open({dir_.path().string()});
  EXPECT_EQ(opened->read("a", {1}).error().message, "tensor a [1] is missing");
  EXPECT_TRUE(opened->read("b", {1}));

  std::ofstream(path("model.safetensors.index.json"))
      << R"({"weight_map": {"b": "three.safetensors"}})";
  EXPECT_EQ(Safetensors::open({dir_.path().string()}).error().message,
            path("three.safetensors") + ": cannot be read: No such file or directory");
  std::ofstream(path("model.safetensors.index.json")) << "{}";
  EXPECT_EQ(Safetensors::open({dir_.path().string()}).error().message,
            path("model.safetensors.index.json") + ": has no object weight_map");
}

TEST_F(SafetensorsTest, WhatATensorIsNotIsNamed) {
  const std::string file =
      write("model.safetensors",
            R"({"a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
                "b": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]},
                "c": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 4]}})",
            std::string(12, '\0'));
  const kw::Result<Safetensors> opened = Safetensors::open({file});
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->read("model.norm.weight", {2, 3}).error().message,
            "tensor model.norm.weight [2, 3] is missing");
  EXPECT_EQ(opened->read("a", {3, 2}).error().message,
            file + ": tensor a: its shape is [2, 3], the config's is [3, 2]");
  EXPECT_EQ(opened->read("b", {2}).error().message,
            file + ": tensor b: its dtype is F8_E4M3, not one of BF16, F16 and F32");
  EXPECT_EQ(opened->read("c", {4}).error().message,
            file + ": tensor c: BF16 [4] has 8 bytes, its data_offsets 4");
  EXPECT_EQ(Safetensors::open({file, file}).error().message,
            file + ": tensor a: is also in " + file);
  EXPECT_EQ(Safetensors::open({path("none")}).error().message,
            path("none") + ": cannot be read: No such file or directory");
}

TEST_F(SafetensorsTest, AHeaderThatDoesNotDescribeItsFileIsRefused) {
  EXPECT_EQ(refusal("[]"), std::string(": its header ") + kNoObject);
  EXPECT_EQ(refusal("{"), std::string(": its header ") + kNoObject);
  const std::string needs = ": tensor a: needs dtype, shape and two data_offsets";
  for (const char* wrong : {R"({"a": 1})", R"({"a": {}})",
                            R"({"a": {"dtype": "BF16", "shape": [-1], "data_offsets": [0, 0]}})",
                            R"({"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0]}})",
                            R"({"a": {"dtype": 1, "shape": [1], "data_offsets": [0, 2]}})"}) {
    EXPECT_EQ(refusal(wrong).substr(0, needs.size()), needs) << wrong;
  }
  EXPECT_EQ(refusal(R"({"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}})", "1234567"),
            ": tensor a: data_offsets [0,8] are not in the file's 7 bytes of data");
  EXPECT_EQ(refusal(R"({"a": {"dtype": "BF16", "shape": [1], "data_offsets": [4, 2]}})", "1234567"),
            ": tensor a: data_offsets [4,2] are not in the file's 7 bytes of data");
  std::ofstream(path("wrong"), std::ios::binary) << "abc";
  EXPECT_NE(Safetensors::open({path("wrong")}).error().message.find("has 3 bytes"),
            std::string::npos);
  std::ofstream(path("wrong"), std::ios::binary) << std::string(8, '\x7f') << "{}";
  EXPECT_NE(Safetensors::open({path("wrong")}).error().message.find("has 10 bytes"),
            std::string::npos);
}

TEST_F(SafetensorsTest, AProductOfSizesThatNoIntegerHasIsRefused) {
  const std::int64_t half = std::int64_t{1} << 32;
  const std::string file =
      write("wrong", R"({"a": {"dtype": "BF16", "shape": [4294967296, 4294967296],
                               "data_offsets": [0, 0]}})",
            "");
  const kw::Result<Safetensors> opened = Safetensors::open({file});
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->read("a", {half, half}).error().message,
            file +
                ": tensor a: BF16 [4294967296, 4294967296] has 2^64 or more bytes, its "
                "data_offsets 0");
}

TEST_F(SafetensorsTest, AnIndexNamesFilesBesideItAlone) {
  write("one.safetensors", R"({"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}})",
        bytes_of(Tensor{5}));
  for (const char* name : {R"("/etc/passwd")", R"("../one.safetensors")", R"("./one.safetensors")",
                           R"("..")", R"("")", R"("one.safetensors\u0000")", "3", "null"}) {
    std::ofstream(path("model.safetensors.index.json"))
        << R"({"weight_map": {"a": )" << name << "}}";
    EXPECT_EQ(Safetensors::open({dir_.path().string()}).error().message,
              path("model.safetensors.index.json") + ": weight_map: a: " + name +
                  " is no name of a file beside it");
  }
}

TEST_F(SafetensorsTest, WhatIsNoRegularFileIsNotRead) {
  ASSERT_EQ(::mkfifo(path("pipe.safetensors").c_str(), 0600), 0);
  const std::string not_regular = ": cannot be read: not a regular file";
  EXPECT_EQ(Safetensors::open({dir_.path().string()}).error().message,
            path("pipe.safetensors") + not_regular);
  EXPECT_EQ(Safetensors::open({"/dev/zero"}).error().message, "/dev/zero" + not_regular);
  ASSERT_EQ(::mkfifo(path("model.safetensors.index.json").c_str(), 0600), 0);
  EXPECT_EQ(Safetensors::open({dir_.path().string()}).error().message,
            path("model.safetensors.index.json") + not_regular);
}

TEST_F(SafetensorsTest, NestedJsonIsRefused) {
  const std::string deep(200'000, '[');
  for (const std::string& header :
       {deep, R"({"a": )" + deep + std::string(200'000, ']') + "}",
        R"({"a": {"dtype": "BF16", "shape": )" + deep + std::string(200'000, ']') + "}}"}) {
    EXPECT_EQ(refusal(header), std::string(": its header ") + kNoObject);
  }
  std::ofstream(path("model.safetensors.index.json")) << R"({"weight_map": )" << deep;
  EXPECT_FALSE(Safetensors::open({dir_.path().string()}));
  EXPECT_FALSE(parse_json(std::string(64, '[') + std::string(64, ']')).is_discarded());
  EXPECT_TRUE(parse_json(std::string(65, '[') + std::string(65, ']')).is_discarded());
}

}  // namespace
}  // namespace decode
