// The driver's functions behind cudaGetDriverEntryPointByVersion. They return
// errors as CUresult, with the values of cudaError_t here, and leave the
// runtime's last error alone.
#include <cstring>
#include <string_view>

#include "tests/kernels/cuda_on_cpu/fake_runtime.h"

namespace counterweight::fake_cuda {
namespace {

using Address = unsigned long long;
using Handle = unsigned long long;

// As cuda.h has them.
struct Location {
  int type;
  int id;
};
struct Properties {
  int type;
  int handle_types;
  Location location;
  void* metadata;
  unsigned char flags[8];
};
struct AccessDescription {
  Location location;
  int flags;
};
constexpr int kOnDevice = 1;

int AddressRange(unsigned long long* base, size_t* size,
                 unsigned long long address) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cuMemGetAddressRange", true, [&] {
    const auto* memory = reinterpret_cast<const void*>(address);
    const Allocation* allocation = runtime.memory.Find(memory, 1);
    if (!IsDeviceMemory(memory, 1)) return cudaErrorInvalidValue;
    *base = reinterpret_cast<unsigned long long>(runtime.memory.BaseOf(memory));
    *size = allocation->size;
    if (allocation->kind != MemoryKind::kOpened) return cudaSuccess;
    constexpr size_t kNeighbour = 512;
    if (runtime.opened_range == OpenedRange::kOfBlock) {
      *base -= kNeighbour;
      *size += kNeighbour;
    }
    return runtime.opened_range == OpenedRange::kUnknown ? cudaErrorInvalidValue
                                                         : cudaSuccess;
  });
}

int PointerAttribute(void* data, int attribute, unsigned long long address) {
  constexpr int kRangeStart = 11;
  constexpr int kRangeSize = 12;
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cuPointerGetAttribute", true, [&] {
    const auto* memory = reinterpret_cast<const void*>(address);
    if (!IsDeviceMemory(memory, 1)) return cudaErrorInvalidValue;
    const void* const base = runtime.memory.BaseOf(memory);
    const size_t size = runtime.memory.Find(memory, 1)->size;
    if (attribute == kRangeStart) std::memcpy(data, &base, sizeof(base));
    if (attribute == kRangeSize) std::memcpy(data, &size, sizeof(size));
    return cudaSuccess;
  });
}

// A call that the runtime's thread-local error does not remember.
template <class F>
int DriverCall(const char* name, bool can_fail, F body) {
  const cudaError_t before = LastError();
  const cudaError_t error = Runtime::Get().Call(name, can_fail, body);
  LastError() = before;
  return error;
}

Memory& DeviceMemory() { return Runtime::Get().memory; }

int Reserve(Address* begin, size_t size, size_t /*alignment*/,
            Address /*wanted*/, unsigned long long /*flags*/) {
  return DriverCall("cuMemAddressReserve", true,
                    [&] { return DeviceMemory().Reserve(size, begin); });
}

int FreeRange(Address begin, size_t size) {
  return DriverCall("cuMemAddressFree", false,
                    [&] { return DeviceMemory().FreeRange(begin, size); });
}

int Import(Handle* handle, void* descriptor, int type) {
  return DriverCall("cuMemImportFromShareableHandle", true, [&] {
    if (type != 1) return cudaErrorInvalidValue;
    const auto file = static_cast<int>(reinterpret_cast<intptr_t>(descriptor));
    return DeviceMemory().Import(file, handle);
  });
}

int GetProperties(Properties* properties, Handle handle) {
  return DriverCall("cuMemGetAllocationPropertiesFromHandle", true, [&] {
    int device = 0;
    const cudaError_t error = DeviceMemory().DeviceOf(handle, &device);
    *properties = {1, 1, {kOnDevice, device}, nullptr, {}};
    return error;
  });
}

int Map(Address begin, size_t size, size_t offset, Handle handle,
        unsigned long long /*flags*/) {
  return DriverCall("cuMemMap", true, [&] {
    if (offset != 0) return cudaErrorInvalidValue;
    return DeviceMemory().MapPart(begin, size, handle);
  });
}

int Unmap(Address begin, size_t size) {
  return DriverCall("cuMemUnmap", false, [&] {
    const cudaError_t error = Runtime::Get().RunAll();
    return error == cudaSuccess ? DeviceMemory().UnmapPart(begin, size) : error;
  });
}

int SetAccess(Address begin, size_t size, const AccessDescription* access,
              size_t count) {
  return DriverCall("cuMemSetAccess", true, [&] {
    constexpr int kReadWrite = 3;
    if (count != 1 || access->location.type != kOnDevice ||
        access->flags != kReadWrite) {
      return cudaErrorInvalidValue;
    }
    return DeviceMemory().GrantAccess(begin, size, access->location.id);
  });
}

int Release(Handle handle) {
  return DriverCall("cuMemRelease", false,
                    [&] { return DeviceMemory().Release(handle); });
}

void* DriverFunction(std::string_view name) {
  const struct {
    std::string_view name;
    void* function;
  } functions[] = {
      {"cuMemGetAddressRange", reinterpret_cast<void*>(AddressRange)},
      {"cuPointerGetAttribute", reinterpret_cast<void*>(PointerAttribute)},
      {"cuMemAddressReserve", reinterpret_cast<void*>(Reserve)},
      {"cuMemAddressFree", reinterpret_cast<void*>(FreeRange)},
      {"cuMemImportFromShareableHandle", reinterpret_cast<void*>(Import)},
      {"cuMemGetAllocationPropertiesFromHandle",
       reinterpret_cast<void*>(GetProperties)},
      {"cuMemMap", reinterpret_cast<void*>(Map)},
      {"cuMemUnmap", reinterpret_cast<void*>(Unmap)},
      {"cuMemSetAccess", reinterpret_cast<void*>(SetAccess)},
      {"cuMemRelease", reinterpret_cast<void*>(Release)},
  };
  for (const auto& known : functions) {
    if (known.name == name) return known.function;
  }
  return nullptr;
}

}  // namespace
}  // namespace counterweight::fake_cuda

using namespace counterweight::fake_cuda;  // NOLINT: the names of one file

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(
    const char* symbol, void** function, unsigned, unsigned long long,
    cudaDriverEntryPointQueryResult* result) {
  return Runtime::Get().Call("cudaGetDriverEntryPointByVersion", true, [&] {
    *function = DriverFunction(symbol);
    const bool is_known = *function != nullptr;
    *result = is_known ? cudaDriverEntryPointSuccess
                       : cudaDriverEntryPointSymbolNotFound;
    return is_known ? cudaSuccess : cudaErrorSymbolNotFound;
  });
}

}  // extern "C"
