#include "device/program/prepared_program.h"

#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "model/candidate/candidate.h"
#include "model/candidate/device_profile.h"
#include "model/catalog/catalog.h"

namespace kernwright {
namespace {

void expect_launchable(const Result<ExecutionPlan>& plan, const std::string& label) {
  ASSERT_TRUE(plan) << label << ": " << plan.error().message;
  for (const LaunchPlan& launch : plan.value().launches) {
    EXPECT_LE(launch.arguments.size(), PreparedProgram::kMaxArguments) << label;
  }
  EXPECT_LE(plan.value().tensor_maps.size(), PreparedProgram::kMaxTensorMaps) << label;
}

// Candidates are loaded by other tests; these kernels run on a GPU alone.
TEST(PreparedProgramTest, TakesTheReferenceAndTheInputKernelsOfEveryOperation) {
  const std::shared_ptr<const Catalog> catalog = Catalog::load({}).value();
  const DeviceProfile profile = *find_profile("h200");
  for (const Operation& operation : catalog->operations()) {
    const BoundProblem problem = BoundProblem::bind(operation, operation.example).value();
    expect_launchable(make_reference_plan(problem, profile), operation.name + " reference");
    if (!operation.input_kernels) continue;
    expect_launchable(make_input_plan(problem, operation.input_kernels->timing, profile),
                      operation.name + " inputs");
  }
}

}  // namespace
}  // namespace kernwright
