#include "support/libraries/sha256.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

TEST(Sha256Test, GivesThePublishedDigests) {
  // FIPS 180-2, appendix B.1, and the digest of nothing.
  EXPECT_EQ(sha256_base64("abc"), "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
  EXPECT_EQ(sha256_base64(""), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
}

}  // namespace
}  // namespace kernwright
