#include "service/answer/seal.h"

#include <string>

#include "support/text.h"

namespace kernwright {

Result<void> Seal::admit(std::string_view problem, std::string_view why) {
  const State state = state_;
  if (state == State::open) return {};
  counted_.fetch_add(1, std::memory_order_relaxed);
  std::string message = concat(problem, " needs a compile (", why,
                               "), and the service is sealed; tune it or prewarm it before the "
                               "seal, or install a bundle that has it");
  if (state == State::refusing) return Error{ErrorCode::refused, std::move(message)};
  if (log_) log_(LogLevel::warning, message);
  return {};
}

}  // namespace kernwright
