#pragma once

#include <memory>
#include <utility>

#include "compile/compiler.h"
#include "support/mutex.h"
#include "support/processes/channel.h"

namespace kernwright::detail {

/// A channel to which two threads write: the worker's loop, and a compile for which it waits.
struct SharedChannel {
  explicit SharedChannel(Channel opened) : channel(std::move(opened)) {}

  Mutex mutex;
  Channel channel KW_GUARDED_BY(mutex);
};

/// A compiler that asks the tuning process, which has the toolkit loaded. That process keeps the
/// results after a worker has ended, so that nothing is compiled twice.
std::shared_ptr<Compiler> make_remote_compiler(std::shared_ptr<SharedChannel> channel);

}  // namespace kernwright::detail
