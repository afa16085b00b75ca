#include "server/shared_memory/device_region.h"

#include <cstdint>
#include <string>
#include <utility>

#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

// An open allocation; the destructor closes it.
class OpenAllocation {
 public:
  OpenAllocation(kernels::Corrector* backend, void* memory)
      : backend_(backend), memory_(memory) {}
  OpenAllocation(OpenAllocation&& other) noexcept
      : backend_(other.backend_),
        memory_(std::exchange(other.memory_, nullptr)) {}
  OpenAllocation& operator=(OpenAllocation&&) = delete;
  ~OpenAllocation() {
    if (memory_ != nullptr) backend_->CloseDeviceMemory(memory_);
  }

  void* memory() const { return memory_; }

 private:
  kernels::Corrector* const backend_;
  void* memory_;
};

class DeviceRegion final : public Region {
 public:
  DeviceRegion(OpenAllocation allocation, const ControlRequest& request,
               std::shared_ptr<RegionCounts> counts)
      : counts_(std::move(counts)),
        allocation_(std::move(allocation)),
        size_(static_cast<int64_t>(request.size)),
        access_(request.access),
        device_(request.device) {
    counts_->regions += 1;
    counts_->device_bytes += size_;
  }
  DeviceRegion(const DeviceRegion&) = delete;
  DeviceRegion& operator=(const DeviceRegion&) = delete;
  ~DeviceRegion() override {
    counts_->regions -= 1;
    counts_->device_bytes -= size_;
  }

  std::byte* data() const override {
    return static_cast<std::byte*>(allocation_.memory());
  }
  int64_t size() const override { return size_; }
  RegionAccess access() const override { return access_; }
  std::optional<kernels::DeviceUuid> device() const override { return device_; }
  std::weak_ptr<const void> open() const override { return open_; }

 private:
  // The first member, so that it ends after the others.
  const std::shared_ptr<const void> open_ = std::make_shared<char>();
  const std::shared_ptr<RegionCounts> counts_;
  const OpenAllocation allocation_;
  const int64_t size_;
  const RegionAccess access_;
  const kernels::DeviceUuid device_;
};

// Both return null with an error sentence if the memory cannot be opened.
void* OpenWhole(const ControlRequest& request, kernels::Corrector* backend,
                std::string* error) {
  int64_t bytes = 0;
  void* const memory = backend->OpenDeviceMemory(request.allocation,
                                                 request.device, &bytes, error);
  if (memory == nullptr) return nullptr;
  if (bytes >= 0 && request.size <= static_cast<uint64_t>(bytes)) return memory;
  backend->CloseDeviceMemory(memory);
  *error = fmt::format("the size is {}, but the allocation has {} bytes",
                       request.size, bytes);
  return nullptr;
}

void* OpenParts(const ControlRequest& request, std::span<const int> parts,
                kernels::Corrector* backend, std::string* error) {
  if (request.size % parts.size() != 0 || request.size > INT64_MAX) {
    *error = fmt::format("the size is {}, which {} parts cannot have",
                         request.size, parts.size());
    return nullptr;
  }
  return backend->OpenDeviceParts(
      parts, static_cast<int64_t>(request.size / parts.size()), request.device,
      error);
}

}  // namespace

std::shared_ptr<const Region> OpenDeviceRegion(
    const ControlRequest& request, std::span<const int> parts,
    kernels::Corrector* backend, const std::shared_ptr<RegionCounts>& counts,
    Refusal* refusal) {
  if (backend == nullptr || backend->Info().devices.empty()) {
    *refusal = {grpc::StatusCode::FAILED_PRECONDITION,
                "the server computes on no device"};
    return nullptr;
  }
  *refusal = {grpc::StatusCode::INVALID_ARGUMENT, ""};
  if (request.size == 0) {
    refusal->message = "the size is 0";
    return nullptr;
  }
  OpenAllocation allocation(
      backend, parts.empty()
                   ? OpenWhole(request, backend, &refusal->message)
                   : OpenParts(request, parts, backend, &refusal->message));
  if (allocation.memory() == nullptr) return nullptr;
  *refusal = {};
  return std::make_shared<const DeviceRegion>(std::move(allocation), request,
                                              counts);
}

}  // namespace counterweight::server
