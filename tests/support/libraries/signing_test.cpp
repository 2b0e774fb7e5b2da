#include "support/libraries/signing.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

class SigningTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<KeyPair> made = make_key_pair();
    ASSERT_TRUE(made) << made.error().message;
    keys_ = *made;
  }
  KeyPair keys_;
};

TEST_F(SigningTest, ASignatureIsThatOfItsMessageAndItsKey) {
  const Result<std::string> signature = sign("message", keys_.secret_key);
  ASSERT_TRUE(signature);
  EXPECT_TRUE(is_signed("message", *signature, keys_.public_key).value());
  EXPECT_FALSE(is_signed("massage", *signature, keys_.public_key).value());
  EXPECT_FALSE(is_signed("message", *signature, make_key_pair()->public_key).value());
  EXPECT_EQ(*sign("message", keys_.secret_key), *signature) << "no part is drawn by chance";
}

TEST_F(SigningTest, WhatIsNoSignatureIsNone) {
  const std::string good = sign("message", keys_.secret_key).value();
  for (const std::string& text :
       {std::string(), good + "00", good.substr(2), "g" + good.substr(1), std::string(128, '0')}) {
    EXPECT_FALSE(is_signed("message", text, keys_.public_key).value()) << text;
  }
}

TEST_F(SigningTest, WhatIsNoKeyIsAnError) {
  EXPECT_FALSE(sign("message", "abc"));
  EXPECT_FALSE(is_signed("message", "", "abc"));
  // Either may be passed in the other's place: neither may be shown.
  const Result<std::string> signed_by_public = sign("message", keys_.public_key);
  const Result<bool> checked_by_secret = is_signed("message", "", keys_.secret_key);
  ASSERT_FALSE(signed_by_public);
  ASSERT_FALSE(checked_by_secret);
  EXPECT_EQ(signed_by_public.error().message,
            "no secret Ed25519 key of 128 hex digits: 64 characters");
  EXPECT_EQ(checked_by_secret.error().message,
            "no public Ed25519 key of 64 hex digits: 128 characters");
}

// RFC 8032, section 7.1, test 2: one byte.
TEST_F(SigningTest, IsThatOfTheStandard) {
  EXPECT_TRUE(is_signed("\x72",
                        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
                        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
                        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
                  .value());
}

}  // namespace
}  // namespace kernwright
