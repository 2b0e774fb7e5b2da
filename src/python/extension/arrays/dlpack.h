#pragma once

#include <cstdint>

/// The part of DLPack's C interface that this extension calls, as DLPack 1.3 lays it out in memory:
/// https://dmlc.github.io/dlpack/latest/c_api.html. Frameworks put a capsule with an `ExchangeApi`
/// on their array types as `__dlpack_c_exchange_api__`.
namespace kernwright::dlpack {

inline constexpr std::uint32_t kMajorVersion = 1;
inline constexpr const char* kExchangeCapsule = "dlpack_exchange_api";
inline constexpr const char* kTensorCapsule = "dltensor";
inline constexpr const char* kVersionedTensorCapsule = "dltensor_versioned";

inline constexpr std::int32_t kCpu = 1;
inline constexpr std::int32_t kCuda = 2;
inline constexpr std::int32_t kCudaManaged = 13;

/// Flags of a versioned tensor: nothing may write it; it is a copy, so nobody sees what is written.
inline constexpr std::uint64_t kReadOnly = 1;
inline constexpr std::uint64_t kCopied = 2;

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

struct Device {
  std::int32_t type;
  std::int32_t id;
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;

  bool operator==(const DataType&) const = default;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< elements; null if the tensor is contiguous
  std::uint64_t byte_offset;
};

struct ManagedTensor {
  Tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

struct VersionedTensor {
  Version version;
  void* context;
  void (*deleter)(VersionedTensor*);
  std::uint64_t flags;
  Tensor tensor;
};

struct ExchangeHeader {
  Version version;
  ExchangeHeader* previous;  ///< the same functions as an older version has them, or null
};

/// The functions return 0 on success, else -1 with a Python error set.
struct ExchangeApi {
  ExchangeHeader header;
  int (*allocate)(Tensor* prototype, VersionedTensor** out, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*export_managed)(void* object, VersionedTensor** out);
  int (*import_managed)(VersionedTensor* tensor, void** object);  ///< takes the tensor
  int (*borrow)(void* object, Tensor* out);  ///< may be null; valid while the object lives
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** out);
};

}  // namespace kernwright::dlpack
