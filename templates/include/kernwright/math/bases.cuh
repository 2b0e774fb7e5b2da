#pragma once

namespace kernwright {

// From base e to base 2, and back.
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

}  // namespace kernwright
