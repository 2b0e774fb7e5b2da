// How matmul/persistent_wave addresses matrices whose rows are no multiple of 16 bytes: the maps of
// its plans and the arithmetic of its kernel, walked element by element.

#define __device__  // NOLINT(bugprone-reserved-identifier): the kernel's header on the host
#include "templates/include/kernwright/row_classes.cuh"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <span>
#include <vector>

#include "model/candidate.h"
#include "model/catalog.h"
#include "model/device_profile.h"
#include "support/text.h"

namespace kernwright {
namespace {

constexpr std::int64_t kOutside = -1;

/// The tensor's element that a map has at (x, y); kOutside beyond the map's extent.
std::int64_t element(const TensorMapPlan& map, std::int64_t x, std::int64_t y) {
  const auto inside = [](std::int64_t value, std::uint64_t extent) {
    return value >= 0 && value < static_cast<std::int64_t>(extent);
  };
  if (!inside(x, map.dims[0]) || !inside(y, map.dims[1])) return kOutside;
  return static_cast<std::int64_t>(map.offset_bytes +
                                   static_cast<std::uint64_t>(y) * map.strides_bytes[0]) /
             2 +
         x;
}

int shift(int row_class, std::int64_t columns) {
  return class_shift(static_cast<unsigned>(row_class), static_cast<unsigned>(columns));
}

class RowClassesTest : public ::testing::Test {
 protected:
  /// A candidate of the template; `changed` leaves the default configuration.
  Candidate candidate(const std::string& problem, std::int64_t bm = 128) const {
    const KernelTemplate& made = **catalog_->kernel_template("matmul/persistent_wave");
    const Operation& operation = **catalog_->operation("matmul");
    auto values = made.default_configuration.values();
    for (auto& [name, value] : values) {
      if (name == "BM") value = bm;
      if (name == "BN" || name == "OVERLAP") value = name == "BN" ? 128 : 0;
      if (name == "STAGES") value = bm == 64 ? 8 : bm == 128 ? 6 : 4;
    }
    const auto normalized = operation.normalize(Problem::parse(problem).value());
    Result<Candidate> candidate =
        make_candidate(made, operation, *normalized, Configuration(std::move(values)), h200_);
    EXPECT_TRUE(candidate) << candidate.error().message;
    return *std::move(candidate);
  }

  static std::span<const TensorMapPlan> maps(const Candidate& candidate, std::size_t argument) {
    const ArgumentPlan& plan = candidate.plan.launches[0].arguments[argument];
    return std::span(candidate.plan.tensor_maps).subspan(plan.index, plan.count);
  }

  /// Loads every tile of `rows` x `columns`: each element comes once, to its place, and zeros stand
  /// where the matrix has ended.
  template <int Classes, int Tile>
  static void expect_loaded(std::span<const TensorMapPlan> maps, std::int64_t rows,
                            std::int64_t columns) {
    ASSERT_EQ(maps.size(), std::size_t{Classes});
    for (const TensorMapPlan& map : maps) ASSERT_EQ(map.box[1], std::uint32_t{Tile / Classes});
    for (std::int64_t base = 0; base < rows; base += Tile) {
      for (int place = 0; place < Tile; ++place) {
        const ClassRow<Classes, Tile> at(place);
        const std::int64_t row = base + Classes * at.row + at.row_class;
        const TensorMapPlan& map = maps[static_cast<std::size_t>(at.row_class)];
        for (std::int64_t column = 0; column < columns + 64; ++column) {
          const std::int64_t found =
              element(map, column + shift(at.row_class, columns), base / Classes + at.row);
          ASSERT_LT(found, rows * columns);
          if (row >= rows) continue;  // its products are never stored
          ASSERT_EQ(found, column < columns ? row * columns + column : kOutside)
              << "row " << row << " column " << column;
        }
      }
    }
  }

  /// Stores every tile: each element is written once, and nothing else.
  template <int Classes, int Tile>
  static void expect_stored(std::span<const TensorMapPlan> maps, std::int64_t rows,
                            std::int64_t columns, int group) {
    std::vector<int> written(static_cast<std::size_t>(rows * columns));
    for (std::int64_t base = 0; base < rows; base += Tile) {
      for (int place = 0; place < Tile; ++place) {
        const ClassRow<Classes, Tile> first(place / group * group);
        const ClassRow<Classes, Tile> at(place);
        ASSERT_EQ(at.row_class, first.row_class);
        ASSERT_EQ(at.row, first.row + place % group);
        if (base + Classes * first.row + first.row_class >= rows) continue;
        const TensorMapPlan& map = maps[static_cast<std::size_t>(at.row_class)];
        for (std::int64_t column = 0; column < columns + 128; ++column) {
          const std::int64_t found =
              element(map, column + shift(at.row_class, columns), base / Classes + at.row);
          if (found == kOutside) continue;
          ASSERT_EQ(found, (base + Classes * at.row + at.row_class) * columns + column);
          ++written[static_cast<std::size_t>(found)];
        }
      }
    }
    for (const int times : written) ASSERT_EQ(times, 1);
  }

  template <int Tile>
  void expect_right(const std::string& problem) const {
    SCOPED_TRACE(concat(problem, " BM=", Tile));
    const Candidate made = candidate(problem, Tile);
    const auto value = [&](const char* name) { return made.scope.find(name).value(); };
    const auto by_class = [&](std::int64_t classes, auto&& check) {
      switch (classes) {
        case 1:
          return check.template operator()<1>();
        case 2:
          return check.template operator()<2>();
        case 4:
          return check.template operator()<4>();
        default:
          return check.template operator()<8>();
      }
    };
    by_class(value("CLASSES_A"), [&]<int Classes>() {
      expect_loaded<Classes, Tile>(maps(made, 0), value("m"), value("k"));
      expect_stored<Classes, Tile>(maps(made, 2), value("m"), value("n"),
                                   static_cast<int>(value("STORE_ROWS")));
    });
    by_class(value("CLASSES_B"), [&]<int Classes>() {
      expect_loaded<Classes, 128>(maps(made, 1), value("n"), value("k"));
    });
  }

  const std::shared_ptr<const Catalog> catalog_ = Catalog::load({}).value();
  const DeviceProfile h200_ = find_profile("h200").value();
};

TEST_F(RowClassesTest, AreAsFewAsFit) {
  for (const auto& [n, k, a, b] :
       {std::array{8, 16, 1, 1}, std::array{8, 12, 2, 2}, std::array{8, 10, 4, 4},
        std::array{8, 9, 8, 8}, std::array{12, 8, 2, 1}, std::array{1001, 8, 8, 1},
        std::array{12, 1000002, 4, 4}}) {
    const Candidate made = candidate(concat("matmul m=300 n=", n, " k=", k, " dtype=bf16"));
    EXPECT_EQ(made.scope.find("CLASSES_A"), a) << n << " " << k;
    EXPECT_EQ(made.scope.find("CLASSES_B"), b) << n << " " << k;
  }
}

TEST_F(RowClassesTest, EveryElementIsLoadedAndStoredOnceAtItsPlace) {
  for (const char* sizes :
       {"m=1 n=1 k=1", "m=3 n=2 k=1", "m=5 n=9 k=3", "m=7 n=1 k=7", "m=1 n=7 k=2", "m=2 n=5 k=4",
        "m=129 n=131 k=65", "m=130 n=133 k=66", "m=131 n=134 k=68", "m=132 n=136 k=70",
        "m=257 n=129 k=8", "m=133 n=260 k=72", "m=200 n=66 k=128", "m=137 n=136 k=71",
        "m=264 n=264 k=72"}) {
    const std::string problem = concat("matmul ", sizes, " dtype=fp16");
    expect_right<64>(problem);
    expect_right<128>(problem);
    expect_right<192>(problem);
    if (HasFatalFailure()) return;
  }
}

/// Walks the accumulators of all lanes in the order in which a chunk is rounded.
template <int Classes, int Columns>
void expect_runs() {
  for (int chunk = 0; chunk < Columns; chunk += 64) {
    const int start = std::min(chunk, Columns - 64);
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 32; ++i) {
        const int number = start / 2 / Classes + class_register<Classes, Columns>(i);
        // Where wgmma keeps it: columns of B in the order of its rows in shared memory.
        const int place = number / 4 * 8 + lane % 4 * 2 + number % 2;
        const ClassRow<Classes, Columns> at(place);
        const int run = i / (4 * Classes);
        EXPECT_EQ(number / 2 % 2, i / (2 * Classes) % 2);
        EXPECT_EQ(at.row * Classes + at.row_class,
                  start + Classes * (8 * run + 2 * (lane % 4)) + i % (2 * Classes));
      }
    }
  }
}

TEST_F(RowClassesTest, ThreadsHoldRunsOfNeighbouringColumns) {
  expect_runs<1, 176>();
  expect_runs<2, 64>();
  expect_runs<2, 176>();
  expect_runs<4, 128>();
  expect_runs<4, 224>();
  expect_runs<8, 64>();
  expect_runs<8, 256>();
}

}  // namespace
}  // namespace kernwright
