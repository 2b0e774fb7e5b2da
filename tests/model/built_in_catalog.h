#pragma once

#include <gtest/gtest.h>

#include "model/catalog/catalog.h"

namespace kernwright {

/// The catalog of what is built in, loaded once.
inline const Catalog& catalog() {
  static const auto loaded = Catalog::load({});
  EXPECT_TRUE(loaded) << loaded.error().message;
  return **loaded;
}

}  // namespace kernwright
