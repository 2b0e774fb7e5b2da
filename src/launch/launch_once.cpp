#include "launch/launch_once.h"

#include <memory>
#include <utility>
#include <vector>

namespace kernwright {

Result<void> launch_once(Device& device, std::string_view cubin, const ExecutionPlan& plan) {
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  const auto zeros = [&](std::int64_t bytes) -> Result<DevicePointer> {
    Result<std::unique_ptr<DeviceBuffer>> buffer = device.allocate(bytes);
    if (!buffer) return buffer.error();
    const DevicePointer address = (*buffer)->address();
    if (Result<void> filled = device.fill(address, 0, bytes); !filled) return filled.error();
    buffers.push_back(*std::move(buffer));
    return address;
  };
  LaunchArguments arguments;
  for (const TensorShape& tensor : plan.tensors) {
    const Result<DevicePointer> address = zeros(tensor.bytes());
    if (!address) return address.error();
    arguments.tensors.push_back(*address);
  }
  for (const Scalar& scalar : plan.scalars) arguments.scalars.push_back(scalar.default_value);
  if (plan.workspace_bytes() > 0) {
    const Result<DevicePointer> address = zeros(plan.workspace_bytes());
    if (!address) return address.error();
    arguments.workspace = *address;
  }
  const Result<std::shared_ptr<LoadedProgram>> program = device.load(cubin, plan);
  if (!program) return program.error();
  return device.run(**program, arguments);
}

}  // namespace kernwright
