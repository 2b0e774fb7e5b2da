#pragma once

namespace kernwright {

enum class LockAttempt { taken, busy, failed };

/// Tries to lock an open file for this descriptor alone, without waiting. If the attempt `failed`,
/// errno says why.
LockAttempt try_lock(int file);

}  // namespace kernwright
