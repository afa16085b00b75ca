#include "kernels/cuda/part_memory.h"

#include <cuda_runtime_api.h>

#include "kernels/cuda/driver_function.h"

namespace counterweight::kernels {
namespace {

// Types, numbers and functions of the driver's virtual memory management, as
// cuda.h of CUDA 12.0 declares them.
using Address = unsigned long long;
using Handle = unsigned long long;

constexpr int kPosixFileDescriptor = 1;
constexpr int kOnDevice = 1;
constexpr int kReadWrite = 3;

struct Location {
  int type;
  int id;
};
struct Properties {
  int type;
  int handle_types;
  Location location;
  void* unused;
  unsigned char flags[8];
};
static_assert(sizeof(Properties) == 32);
struct Access {
  Location location;
  int flags;
};
static_assert(sizeof(Access) == 12);

struct Driver {
  int (*reserve)(Address*, size_t size, size_t alignment, Address,
                 Handle flags);
  int (*free)(Address, size_t);
  int (*import)(Handle*, void* descriptor, int handle_type);
  int (*properties)(Properties*, Handle);
  int (*map)(Address, size_t size, size_t offset, Handle, Handle flags);
  int (*unmap)(Address, size_t);
  int (*set_access)(Address, size_t, const Access*, size_t count);
  int (*release)(Handle);
};

cudaError_t Load(Driver* driver) {
  COUNTERWEIGHT_CUDA_TRY(FindInDriver("cuMemAddressReserve", &driver->reserve));
  COUNTERWEIGHT_CUDA_TRY(FindInDriver("cuMemAddressFree", &driver->free));
  COUNTERWEIGHT_CUDA_TRY(
      FindInDriver("cuMemImportFromShareableHandle", &driver->import));
  COUNTERWEIGHT_CUDA_TRY(FindInDriver("cuMemGetAllocationPropertiesFromHandle",
                                      &driver->properties));
  COUNTERWEIGHT_CUDA_TRY(FindInDriver("cuMemMap", &driver->map));
  COUNTERWEIGHT_CUDA_TRY(FindInDriver("cuMemUnmap", &driver->unmap));
  COUNTERWEIGHT_CUDA_TRY(FindInDriver("cuMemSetAccess", &driver->set_access));
  return FindInDriver("cuMemRelease", &driver->release);
}

std::string Failed(const char* function, int result) {
  return std::string("the memory cannot be opened: ") + function +
         " failed with CUresult " + std::to_string(result);
}

// A range of addresses and the parts that are mapped there.
class Mapping {
 public:
  Mapping(const Driver& driver, Address begin, size_t bytes, size_t part_bytes,
          size_t parts)
      : driver_(driver),
        begin_(begin),
        bytes_(bytes),
        part_bytes_(part_bytes),
        parts_(parts) {}

  // Maps the next part; an error sentence, or empty.
  std::string Add(int descriptor, int device) {
    Handle handle = 0;
    int result = driver_.import(
        &handle, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
        kPosixFileDescriptor);
    if (result != 0) return Failed("cuMemImportFromShareableHandle", result);
    std::string error = MapPart(handle, device);
    // The mapping keeps the allocation.
    result = driver_.release(handle);
    if (error.empty() && result != 0) error = Failed("cuMemRelease", result);
    return error;
  }

  // Unmaps and frees everything.
  void Close() const {
    for (size_t i = 0; i < parts_; ++i) {
      driver_.unmap(begin_ + i * part_bytes_, part_bytes_);
    }
    driver_.free(begin_, bytes_);
  }

 private:
  std::string MapPart(Handle handle, int device) {
    Properties properties{};
    int result = driver_.properties(&properties, handle);
    if (result != 0) {
      return Failed("cuMemGetAllocationPropertiesFromHandle", result);
    }
    if (properties.location.type != kOnDevice ||
        properties.location.id != device) {
      return "the memory lies on another device than its uuid says";
    }
    result = driver_.map(begin_ + parts_ * part_bytes_, part_bytes_,
                         /*offset=*/0, handle, /*flags=*/0);
    if (result != 0) return Failed("cuMemMap", result);
    ++parts_;
    return "";
  }

  const Driver& driver_;
  const Address begin_;
  const size_t bytes_;
  const size_t part_bytes_;
  size_t parts_;
};

}  // namespace

void* PartMemory::Open(std::span<const int> parts, int64_t part_bytes,
                       int device, std::string* error) {
  Driver driver{};
  const cudaError_t status = Load(&driver);
  if (status != cudaSuccess) {
    cudaGetLastError();  // clears the sticky error
    *error = std::string("the driver cannot map memory: ") +
             cudaGetErrorString(status);
    return nullptr;
  }
  const auto part_size = static_cast<size_t>(part_bytes);
  const size_t bytes = part_size * parts.size();
  Address begin = 0;
  int result = driver.reserve(&begin, bytes, /*alignment=*/0, /*address=*/0,
                              /*flags=*/0);
  if (result != 0) {
    *error = Failed("cuMemAddressReserve", result);
    return nullptr;
  }
  Mapping mapping(driver, begin, bytes, part_size, 0);
  error->clear();
  for (size_t i = 0; i < parts.size() && error->empty(); ++i) {
    *error = mapping.Add(parts[i], device);
  }
  if (error->empty()) {
    const Access access{{kOnDevice, device}, kReadWrite};
    result = driver.set_access(begin, bytes, &access, 1);
    if (result != 0) *error = Failed("cuMemSetAccess", result);
  }
  if (!error->empty()) {
    mapping.Close();
    return nullptr;
  }
  auto* const memory = reinterpret_cast<void*>(begin);
  const std::lock_guard<std::mutex> lock(mutex_);
  ranges_[memory] = {part_size, parts.size()};
  return memory;
}

bool PartMemory::Close(void* memory) {
  Range range{};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = ranges_.find(memory);
    if (found == ranges_.end()) return false;
    range = found->second;
    ranges_.erase(found);
  }
  Driver driver{};
  if (Load(&driver) == cudaSuccess) {
    Mapping(driver, reinterpret_cast<Address>(memory),
            range.part_bytes * range.parts, range.part_bytes, range.parts)
        .Close();
  }
  return true;
}

}  // namespace counterweight::kernels
