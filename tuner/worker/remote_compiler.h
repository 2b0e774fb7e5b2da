#pragma once

#include <memory>
#include <mutex>

#include "compile/compiler.h"
#include "support/processes/channel.h"

namespace kernwright::detail {

/// A channel that two threads write to: the loop of the worker, and a compile that it waits for.
struct SharedChannel {
  std::mutex mutex;
  Channel channel;
};

/// A compiler that asks the tuning process. That process has the toolkit loaded. After a worker's
/// end it still knows what the worker had asked for, so that nothing is compiled twice.
std::shared_ptr<Compiler> make_remote_compiler(std::shared_ptr<SharedChannel> channel);

}  // namespace kernwright::detail
