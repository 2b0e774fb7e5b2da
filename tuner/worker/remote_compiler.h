#pragma once

#include <memory>
#include <mutex>

#include "compile/compiler.h"
#include "support/processes/channel.h"

namespace kernwright::detail {

/// A channel that two threads write to: the loop of the worker, and a compile it waits for.
struct SharedChannel {
  std::mutex mutex;
  Channel channel;
};

/// Has the tuning process compile: it has the toolkit loaded, and after a worker's end it still
/// knows what the worker before it asked for, so that nothing is compiled twice.
std::shared_ptr<Compiler> make_remote_compiler(std::shared_ptr<SharedChannel> channel);

}  // namespace kernwright::detail
