#pragma once

#include <functional>
#include <string_view>

namespace kernwright {

enum class LogLevel { debug, info, warning };
using LogSink = std::function<void(LogLevel, std::string_view)>;

}  // namespace kernwright
