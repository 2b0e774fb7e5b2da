#include "model/catalog/catalog.h"

#include <algorithm>
#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string_view>
#include <thread>
#include <vector>

#include "model/files/embedded_files.h"
#include "support/files.h"
#include "tests/model/samples.h"
#include "tests/results.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

/// A user's folder of templates, with the sample operation and its template.
class CatalogTest : public ::testing::Test {
 protected:
  CatalogTest() {
    write("scale/operation.json", kScaleOperation);
    write("scale/reference.cu", "// reference");
    write("scale/boxes/manifest.json", kScaleManifest);
    write("scale/boxes/kernel.cu", "// kernel");
    write("scale/boxes/README.md", "not read");
    write("include/mine/header.cuh", "// header");
  }

  void write(std::string_view path, std::string_view text) {
    ASSERT_TRUE(publish_file(dir_ / path, text));
  }

  std::string load_error() {
    const auto catalog = Catalog::load({dir_.path()});
    return catalog ? "loaded" : catalog.error().message;
  }

  std::string place(const std::string& path) { return (dir_ / path).string(); }

  ScopedTempDir dir_;
};

TEST_F(CatalogTest, FoldersAreAddedToTheBuiltIns) {
  const auto catalog = must(Catalog::load({dir_.path()}));
  const Operation* scale = must(catalog->operation("scale"));
  EXPECT_EQ(scale->reference_source, "// reference");
  const KernelTemplate* boxes = must(catalog->kernel_template("scale/boxes"));
  EXPECT_EQ(boxes->source, "// kernel");
  EXPECT_EQ(boxes->manifest().place, place("scale/boxes/manifest.json"));
  EXPECT_TRUE(catalog->operation("matmul"));
  EXPECT_EQ(catalog->templates_of("scale").size(), 1U);
  EXPECT_EQ(catalog->headers().back().name, "mine/header.cuh");
}

TEST_F(CatalogTest, BindsAProblemToItsOperation) {
  const auto catalog = must(Catalog::load({dir_.path()}));
  const BoundProblem bound = must(catalog->bind(scale_problem(2, 8)));
  EXPECT_EQ(&bound.operation(), *catalog->operation("scale"));
  EXPECT_EQ(bound.text(), "scale m=2 n=8 dtype=bf16");
  EXPECT_EQ(catalog->bind(Problem::make("skale", {}, {})).error().code, ErrorCode::not_found);
  EXPECT_EQ(catalog->bind(scale_problem(2, -8)).error().code, ErrorCode::invalid_argument);
}

TEST_F(CatalogTest, FilesBesideASourceAreItsHeaders) {
  write("scale/boxes/tile.cuh", "// tile");
  write("scale/boxes/plain.h", "// plain");
  write("scale/exact.cuh", "// exact");
  const auto catalog = must(Catalog::load({dir_.path()}));
  const KernelTemplate& boxes = **catalog->kernel_template("scale/boxes");
  ASSERT_EQ(boxes.headers.size(), 2U);
  EXPECT_EQ(boxes.headers[0].name, "plain.h");
  EXPECT_EQ(boxes.headers[1].name, "tile.cuh");
  EXPECT_EQ(boxes.headers[1].text, "// tile");
  const Operation& scale = **catalog->operation("scale");
  ASSERT_EQ(scale.reference_headers.size(), 1U);
  EXPECT_EQ(scale.reference_headers[0].name, "exact.cuh");
}

TEST_F(CatalogTest, HeadersMayLieInAFolderOfTheirFolder) {
  write("include/mine/parts/header.cuh", "// part");
  const auto catalog = must(Catalog::load({dir_.path()}));
  EXPECT_EQ(catalog->headers().back().name, "mine/parts/header.cuh");
  EXPECT_EQ(catalog->headers().back().text, "// part");
}

TEST_F(CatalogTest, AFileBesideASourceMayNotTakeAnotherHeadersName) {
  write("include/tile.cuh", "// tile");
  write("scale/boxes/tile.cuh", "// tile");
  EXPECT_EQ(load_error(), "header \"tile.cuh\" is defined twice, in include/tile.cuh and " +
                              place("scale/boxes/tile.cuh"));
}

TEST_F(CatalogTest, AFileBesideASourceMayNotTakeTheNameOfAUsersFunction) {
  write("scale/operation.json",
        replaced(kScaleOperation, "\"flags\": {",
                 "\"flags\": {\"epilogue\": {\"function\": \"float f(float value)\"}, "));
  write("scale/boxes/epilogue.cu", "// mine");
  EXPECT_EQ(load_error(),
            "header \"epilogue.cu\" is defined twice, in the function of flag epilogue and " +
                place("scale/boxes/epilogue.cu"));
}

TEST_F(CatalogTest, TheHeaderThatIsMadeForEachKernelIsNobodysElse) {
  write("include/kernwright/config.cuh", "// mine");
  EXPECT_EQ(load_error(), place("include/kernwright/config.cuh") +
                              ": header \"kernwright/config.cuh\" is made for each kernel");
}

TEST_F(CatalogTest, ALinkOutOfTheFolderIsRefused) {
  const ScopedTempDir elsewhere;
  ASSERT_TRUE(publish_file(elsewhere / "secret", "secret"));
  const std::filesystem::path link = dir_ / "scale/boxes/tile.cuh";
  std::filesystem::create_symlink(elsewhere / "secret", link);
  EXPECT_EQ(load_error(), link.string() + " is a link to " +
                              std::filesystem::canonical(elsewhere / "secret").string() +
                              ", outside of " + std::filesystem::canonical(dir_.path()).string());
  std::filesystem::remove(link);
  std::filesystem::create_symlink("kernel.cu", link);
  EXPECT_EQ(load_error(), "loaded") << "a link within the folder";
}

TEST_F(CatalogTest, AByteOrderMarkIsSkipped) {
  write("scale/boxes/kernel.cu", "\xEF\xBB\xBF// kernel");
  write("scale/boxes/manifest.json", std::string("\xEF\xBB\xBF").append(kScaleManifest));
  const auto catalog = must(Catalog::load({dir_.path()}));
  EXPECT_EQ((*catalog->kernel_template("scale/boxes"))->source, "// kernel");
}

TEST_F(CatalogTest, EveryBuiltInFileParses) {
  const auto catalog = must(Catalog::load({}));
  const Result<void> parsed = catalog->parse_all();
  EXPECT_TRUE(parsed) << parsed.error().message;
  const auto defined = [](std::string_view file) {
    return std::ranges::count_if(embedded_templates(), [file](const EmbeddedFile& embedded) {
      return embedded.path.ends_with(file);
    });
  };
  EXPECT_EQ(catalog->operations().size(), defined("/operation.json"));
  EXPECT_EQ(catalog->templates().size(), defined("/manifest.json"));
}

TEST_F(CatalogTest, ThreadsThatAskForOneFileGetOneObject) {
  const auto catalog = Catalog::load({}).value();
  constexpr std::size_t kThreads = 4;
  std::array<const KernelTemplate*, kThreads> found{};
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        // Half of them find the template by its operation, whose others are parsed before it.
        found[i] = i % 2 == 0 ? catalog->kernel_template("matmul/tiled").value()
                              : catalog->templates_of("matmul").back();
      });
    }
  }
  ASSERT_EQ(found[1]->name, "matmul/tiled");
  for (const KernelTemplate* one : found) EXPECT_EQ(one, found[0]);
  EXPECT_EQ(found[0]->source.find("#include"), 0U);
}

TEST_F(CatalogTest, ATemplateMayImplementABuiltInOperation) {
  const auto built_in = must(Catalog::load({}));
  const std::size_t count = built_in->templates_of("vector_add").size();
  write("vector_add/mine/kernel.cu", "// mine");
  write("vector_add/mine/manifest.json", R"json({
    "operation": "vector_add", "description": "one thread per element", "source": "kernel.cu",
    "arch": {"min": 80}, "dims": {"n": "runtime"},
    "launches": [{"kernel": "mine", "grid": ["ceil_div(n, 256)"], "block": ["256"],
      "arguments": [{"tensor": "a"}, {"tensor": "b"}, {"tensor": "c"}, {"int64": "n"}]}]
  })json");
  const auto catalog = must(Catalog::load({dir_.path()}));
  EXPECT_EQ(catalog->templates_of("vector_add").size(), count + 1);
  EXPECT_EQ(catalog->kernel_template("vector_add/mine").value()->space.size(), 1);
}

TEST_F(CatalogTest, ATemplateMayExtendAFragmentOfThisOrAnotherFolder) {
  write("softmax/mine/kernel.cu", "// mine");
  write("softmax/mine/manifest.json", R"json({
    "extends": "mine/short.json", "operation": "softmax",
    "launches": [{"kernel": "mine", "arguments": [{"tensor": "x"}, {"tensor": "y"}]}]
  })json");
  write("include/mine/short.json", R"json({
    "extends": "kernwright/rows/row.json", "parameters": {"CLUSTER": [1]}
  })json");
  const auto catalog = must(Catalog::load({dir_.path()}));
  const KernelTemplate& mine = **catalog->kernel_template("softmax/mine");
  const KernelTemplate& row = **catalog->kernel_template("softmax/row");
  EXPECT_EQ(mine.space.size() * 4, row.space.size());
  ASSERT_EQ(mine.manifests.size(), 3U);
  EXPECT_EQ(mine.manifests[1].place, place("include/mine/short.json"));
  EXPECT_EQ(mine.manifests[2].text, row.manifests[1].text);
  write("include/kernwright/rows/row.json", "{}");
  EXPECT_EQ(load_error(),
            "fragment \"kernwright/rows/row.json\" is defined twice, in "
            "templates/include/kernwright/rows/row.json and " +
                place("include/kernwright/rows/row.json"));
}

TEST_F(CatalogTest, NamesDefinedTwiceAreRefusedWithBothPlaces) {
  EXPECT_THAT(Catalog::load({dir_.path(), dir_.path()}),
              Fails("header \"mine/header.cuh\" is defined twice, in " +
                    place("include/mine/header.cuh") + " and " + place("include/mine/header.cuh")));
  std::filesystem::remove_all(dir_ / "include");
  EXPECT_EQ(
      Catalog::load({dir_.path(), dir_.path()}).error().message,
      "operation \"scale\" is defined twice, in " + place("scale") + " and " + place("scale"));
}

TEST_F(CatalogTest, ATemplateIsDefinedOnceForAllFolders) {
  const std::string path = "vector_add/vectorized/manifest.json";
  write(path, "{}");
  EXPECT_EQ(load_error(), "template \"vector_add/vectorized\" is defined twice, in templates/" +
                              path + " and " + place(path));
}

TEST_F(CatalogTest, UnknownNamesListWhatThereIs) {
  const auto catalog = must(Catalog::load({}));
  EXPECT_THAT(catalog->operation("matmull"), Fails(ErrorCode::not_found, HasSubstr("matmul, ")));
  EXPECT_FALSE(catalog->kernel_template("matmul/none"));
}

TEST_F(CatalogTest, MissingFilesAreNamedWithTheirPlace) {
  EXPECT_EQ(Catalog::load({dir_ / "nothing"}).error().message,
            "no folder of templates " + place("nothing"));
  std::filesystem::remove(dir_ / "scale/boxes/kernel.cu");
  EXPECT_EQ(load_error(), place("scale/boxes/manifest.json") + ": no file " +
                              place("scale/boxes/kernel.cu") + " beside it");
  std::filesystem::remove(dir_ / "scale/reference.cu");
  EXPECT_EQ(load_error(), place("scale/operation.json") + ": no file " +
                              place("scale/reference.cu") + " beside it");
}

TEST_F(CatalogTest, AnOperationIsNamedAsItsFolder) {
  write("scale/operation.json",
        replaced(kScaleOperation, "\"operation\": \"scale\"", "\"operation\": \"scales\""));
  EXPECT_EQ(load_error(), place("scale/operation.json") +
                              ": operation: \"scales\" is not the folder's name, \"scale\"");
}

TEST_F(CatalogTest, ATemplateNeedsItsOperation) {
  std::filesystem::remove(dir_ / "scale/operation.json");
  EXPECT_EQ(load_error().substr(0, place("scale/boxes/manifest.json").size() + 23),
            place("scale/boxes/manifest.json") + ": no operation \"scale\",");
}

TEST_F(CatalogTest, ErrorsInFilesCarryTheirPath) {
  write("scale/boxes/manifest.json", replaced(kScaleManifest, "[1, 8, 64]", "[1, 8, 8]"));
  EXPECT_EQ(load_error(),
            place("scale/boxes/manifest.json") + ":9: parameters.ROWS[2]: 8 is listed twice");
}

}  // namespace
}  // namespace kernwright
