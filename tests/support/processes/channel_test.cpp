#include "support/processes/channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "tests/results.h"

namespace kernwright {
namespace {

class ChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto ends = Channel::make_pair();
    ASSERT_TRUE(ends) << ends.error().message;
    one_ = std::move(ends->first);
    other_ = std::move(ends->second);
  }
  void write_raw(std::string_view bytes) {
    ASSERT_EQ(::send(one_.socket(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }

  Channel one_;
  Channel other_;
};

TEST_F(ChannelTest, MessagesArriveInOrderAndWhole) {
  ASSERT_TRUE(one_.send("first"));
  ASSERT_TRUE(one_.send(""));
  ASSERT_TRUE(one_.send("third"));
  EXPECT_EQ(other_.receive().value().text, "first");
  EXPECT_EQ(other_.receive().value().text, "");
  EXPECT_EQ(other_.receive().value().text, "third");
}

TEST_F(ChannelTest, AMessageBeyondTheSocketsBufferArrives) {
  const std::string text(8'000'000, 'x');
  std::thread sender([&] { EXPECT_TRUE(one_.send(text)); });
  EXPECT_EQ(other_.receive().value().text, text);
  sender.join();
}

TEST_F(ChannelTest, AFileTravelsWithItsMessage) {
  const auto file = must(memory_file("test", "some bytes"));
  ASSERT_TRUE(one_.send("with", file.get()));
  ASSERT_TRUE(one_.send("without"));
  const auto with = must(other_.receive());
  ASSERT_TRUE(with.file.valid());
  EXPECT_NE(with.file.get(), file.get());
  EXPECT_EQ(read_all(with.file).value(), "some bytes");
  EXPECT_EQ(read_all(with.file).value(), "some bytes") << "from the start again";
  EXPECT_FALSE(other_.receive().value().file.valid());
}

TEST_F(ChannelTest, NothingByTheDeadlineIsATimeout) {
  EXPECT_EQ(other_.receive(deadline_in(0.01)).error().code, ErrorCode::timed_out);
  write_raw(std::string("\x08\0\0\0hal", 7));
  EXPECT_EQ(other_.receive(deadline_in(0.01)).error().code, ErrorCode::timed_out);
}

TEST_F(ChannelTest, AMessageOrAClosedEndMakesItReadable) {
  EXPECT_FALSE(one_.readable(deadline_in(0.0002)).value());
  ASSERT_TRUE(other_.send("text"));
  EXPECT_TRUE(one_.readable(deadline_in(0)).value());
  ASSERT_TRUE(one_.receive());
  EXPECT_FALSE(one_.readable(deadline_in(0)).value());
  other_ = Channel();
  EXPECT_TRUE(one_.readable(kNoDeadline).value());
}

TEST_F(ChannelTest, AnEndThatNobodyReadsIsATimeout) {
  EXPECT_THAT(one_.send(std::string(8'000'000, 'x'), -1, deadline_in(0.01)),
              Fails(ErrorCode::timed_out));
}

TEST_F(ChannelTest, AClosedEndIsSeenByBothSides) {
  one_ = Channel();
  EXPECT_EQ(other_.receive().error().code, ErrorCode::unavailable);
  EXPECT_EQ(other_.send("anybody?").error().code, ErrorCode::unavailable);
}

TEST_F(ChannelTest, ACutOffMessageIsCorrupt) {
  write_raw(std::string("\x08\0\0\0hal", 7));
  one_ = Channel();
  EXPECT_THAT(other_.receive(), Fails(ErrorCode::corrupt, "a message was cut off: 3 of 8 bytes"));
}

TEST_F(ChannelTest, ALengthThatNoMessageHasIsCorrupt) {
  write_raw("garbage");
  EXPECT_EQ(other_.receive().error().code, ErrorCode::corrupt);
  const auto sent = one_.send(std::string(Channel::kMaxBytes + 1, 'x'));
  EXPECT_EQ(sent.error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace kernwright
