#pragma once

namespace kernwright::python {

/// Makes the primary context of a GPU the calling thread's for the length of a scope. That costs
/// nothing if it is current already, as it is if the caller's framework works on that GPU.
class ContextScope {
 public:
  explicit ContextScope(int device);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  /// Returns null, or why the context could not be made current.
  const char* failure() const { return failure_; }

 private:
  bool pushed_ = false;
  const char* failure_ = nullptr;
};

/// Returns the GPU of the calling thread's context, or -1 if it has none.
int current_device();

/// Returns the GPU that an address belongs to, or -1 if the driver does not know it.
int device_of(const void* address);

}  // namespace kernwright::python
