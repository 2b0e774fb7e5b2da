#include "launch/launch_once.h"

#include <memory>
#include <utility>
#include <vector>

#include "support/try.h"

namespace kernwright {

Result<void> launch_once(Device& device, std::string_view cubin, const ExecutionPlan& plan) {
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  const auto zeros = [&](std::int64_t bytes) -> Result<DevicePointer> {
    KW_ASSIGN(std::unique_ptr<DeviceBuffer> buffer, device.allocate(bytes));
    const DevicePointer address = buffer->address();
    KW_TRY(device.fill(address, 0, bytes));
    buffers.push_back(std::move(buffer));
    return address;
  };
  LaunchArguments arguments;
  for (const TensorShape& tensor : plan.tensors) {
    KW_ASSIGN(const DevicePointer address, zeros(tensor.bytes()));
    arguments.tensors.push_back(address);
  }
  for (const Scalar& scalar : plan.scalars) arguments.scalars.push_back(scalar.default_value);
  if (plan.workspace_bytes() > 0) {
    KW_ASSIGN(arguments.workspace, zeros(plan.workspace_bytes()));
  }
  KW_ASSIGN(const std::shared_ptr<LoadedProgram> program, device.load(cubin, plan));
  return device.run(*program, arguments);
}

}  // namespace kernwright
