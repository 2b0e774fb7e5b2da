#pragma once

/// Marks what libkernwright.so exports. Everything else is hidden, so that another LLVM, TBB or
/// kernwright in the same process never meets ours.
#define KERNWRIGHT_API __attribute__((visibility("default")))
