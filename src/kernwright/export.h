#pragma once

/// Marks what libkernwright.so exports; everything else is hidden, so that another LLVM, TBB or
/// kernwright in the process never meets ours.
#define KERNWRIGHT_API __attribute__((visibility("default")))
