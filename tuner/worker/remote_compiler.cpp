#include "tuner/worker/remote_compiler.h"

#include <utility>

#include "cache/stores/artifact_store.h"
#include "support/try.h"
#include "tuner/worker/protocol.h"

namespace kernwright::detail {
namespace {

class RemoteCompiler final : public Compiler {
 public:
  explicit RemoteCompiler(std::shared_ptr<SharedChannel> channel) : channel_(std::move(channel)) {}

  Result<std::string> identity() override { return std::string("the tuning process's"); }

  Result<CompiledKernel> compile(const CompileRequest& request) override {
    const MutexLock lock(channel_->mutex);
    KW_TRY(channel_->channel.send(encode(Reply{CompileReply{request}})));
    KW_ASSIGN(Message message, channel_->channel.receive());
    KW_ASSIGN(Request answer, parse_request(message.text));
    const auto* compiled = std::get_if<CompiledRequest>(&answer);
    if (compiled == nullptr) {
      return Error{ErrorCode::corrupt, "a compile was answered by another request"};
    }
    if (!compiled->error.empty()) return Error{compiled->code, compiled->error};
    KW_ASSIGN(std::string artifact, read_all(message.file));
    return decode_artifact(artifact);
  }

  Result<CompiledKernel> link(const std::vector<std::string>&, const std::string&) override {
    return Error{ErrorCode::unavailable, "a worker does not link"};
  }

 private:
  std::shared_ptr<SharedChannel> channel_;
};

}  // namespace

std::shared_ptr<Compiler> make_remote_compiler(std::shared_ptr<SharedChannel> channel) {
  return std::make_shared<RemoteCompiler>(std::move(channel));
}

}  // namespace kernwright::detail
