#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "compile/compile_pool.h"
#include "compile/compiler.h"
#include "model/catalog/catalog.h"

namespace kernwright {

/// A toolkit's compiler and the built-in catalog; skips with the reason if there is no toolkit.
class ToolkitWorld : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::shared_ptr<Compiler> compiler = make_toolkit_compiler();
    const Result<std::string> identity = compiler->identity();
    if (!identity) GTEST_SKIP() << identity.error().message;
    pool_ = std::make_unique<CompilePool>(compiler, CompilePoolOptions{});
    auto catalog = Catalog::load({});
    ASSERT_TRUE(catalog) << catalog.error().message;
    catalog_ = *catalog;
  }

  std::unique_ptr<CompilePool> pool_;
  std::shared_ptr<const Catalog> catalog_;
};

}  // namespace kernwright
