#pragma once

namespace kernwright {

enum class LockAttempt { taken, busy, failed };

/// Tries to lock an open file for this descriptor alone, without waiting. Where it `failed`, errno
/// says why.
LockAttempt try_lock(int file);

}  // namespace kernwright
