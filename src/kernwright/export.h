#pragma once

/// Marks what libkernwright.so shows. Everything else is built hidden.
#if defined(__GNUC__)
#define KERNWRIGHT_API __attribute__((visibility("default")))
#else
#define KERNWRIGHT_API
#endif
