#include "tests/server/fake_devices.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <stdexcept>
#include <utility>

namespace counterweight::server {
namespace {

void* Map(int64_t size, int protection) {
  void* const data = mmap(nullptr, static_cast<size_t>(size), protection,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::runtime_error("no memory for a device");
  return data;
}

std::atomic<uint64_t> next_handle = 1;

}  // namespace

FakeAllocation::FakeAllocation(kernels::DeviceUuid device, int64_t size)
    : device_(device),
      size_(size),
      data_(static_cast<uint8_t*>(Map(size, PROT_READ | PROT_WRITE))) {
  const uint64_t number = next_handle++;
  std::memcpy(handle_.data(), &number, sizeof(number));
}

FakeAllocation::~FakeAllocation() { munmap(data_, static_cast<size_t>(size_)); }

void FakeDevices::Lend(const FakeAllocation& allocation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  lent_[allocation.handle()] = &allocation;
}

template <typename T>
T* FakeDevices::Behind(T* address) const {
  const auto* const byte = reinterpret_cast<const std::byte*>(address);
  const std::lock_guard<std::mutex> lock(mutex_);
  auto window = windows_.upper_bound(byte);
  if (byte == nullptr || window == windows_.begin()) return address;
  --window;
  const auto& [begin, found] = *window;
  if (byte - begin >= found.size) return address;
  return reinterpret_cast<T*>(found.data + (byte - begin));
}

void FakeDevices::PauseNext(std::function<void()> pause) {
  const std::lock_guard lock(mutex_);
  pause_ = std::move(pause);
}

void FakeDevices::PauseNextClose(std::function<void()> pause) {
  const std::lock_guard lock(mutex_);
  close_pause_ = std::move(pause);
}

std::function<void()> FakeDevices::Take(std::function<void()>* pause) {
  const std::lock_guard lock(mutex_);
  return std::exchange(*pause, {});
}

kernels::CorrectResult FakeDevices::Correct(const kernels::CorrectionSpec& spec,
                                            const kernels::Batch& batch,
                                            const kernels::Outputs& outputs) {
  if (const auto pause = Take(&pause_)) pause();
  if (fails_) {
    return {.status = is_lost_ ? kernels::CorrectStatus::kDeviceLost
                               : kernels::CorrectStatus::kDeviceError,
            .device_error = "the device failed"};
  }
  kernels::Batch on_host = batch;
  for (kernels::TensorView& tensor : on_host.tensors) {
    tensor.data = Behind(static_cast<const std::byte*>(tensor.data));
  }
  on_host.response_mask = Behind(batch.response_mask);
  const int64_t positions = batch.offsets[batch.num_sequences];
  for (int64_t i = 0; i < positions; ++i) {
    const int value = on_host.response_mask[i];
    if (value <= 1) continue;
    return {.status = kernels::CorrectStatus::kBadMask, .bad_mask = {i, value}};
  }
  return cpu_->Correct(spec, on_host,
                       {.weights = Behind(outputs.weights),
                        .keep_mask = Behind(outputs.keep_mask),
                        .token_reasons = Behind(outputs.token_reasons),
                        .sequence_reasons = Behind(outputs.sequence_reasons),
                        .gradient = Behind(outputs.gradient)});
}

void* FakeDevices::OpenDeviceMemory(const kernels::IpcHandle& handle,
                                    const kernels::DeviceUuid& uuid,
                                    int64_t* bytes, std::string* error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = lent_.find(handle);
  if (uuid != kFirstDevice && uuid != kSecondDevice) {
    *error = "the server does not use the device with this UUID";
    return nullptr;
  }
  if (found == lent_.end() || found->second->device() != uuid) {
    *error = "no process of this machine has lent such memory";
    return nullptr;
  }
  *bytes = found->second->size();
  ++open_;
  // Memory opened again has the same address.
  for (auto& [begin, window] : windows_) {
    if (window.allocation != found->second) continue;
    ++window.times;
    return const_cast<std::byte*>(begin);
  }
  void* const memory = Map(*bytes, PROT_NONE);
  windows_[static_cast<const std::byte*>(memory)] = {
      found->second, found->second->data(), *bytes, 1};
  return memory;
}

void* FakeDevices::OpenDeviceParts(std::span<const int> parts,
                                   int64_t part_bytes,
                                   const kernels::DeviceUuid& uuid,
                                   std::string* error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (uuid != kFirstDevice) {
    *error = "the memory lies on another device";
    return nullptr;
  }
  for (const int part : parts) {
    constexpr int64_t kPage = 4096;
    struct stat status {};
    if (part_bytes % kPage == 0 && fstat(part, &status) == 0 &&
        S_ISREG(status.st_mode) && status.st_size >= part_bytes) {
      continue;
    }
    *error = "a part is no memory of this size";
    return nullptr;
  }
  const auto size = static_cast<int64_t>(parts.size()) * part_bytes;
  auto* const data = static_cast<uint8_t*>(Map(size, PROT_NONE));
  for (size_t i = 0; i < parts.size(); ++i) {
    uint8_t* const begin = data + static_cast<int64_t>(i) * part_bytes;
    if (mmap(begin, static_cast<size_t>(part_bytes), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED, parts[i], 0) == MAP_FAILED) {
      throw std::runtime_error("a part cannot be mapped");
    }
  }
  ++open_;
  void* const memory = Map(size, PROT_NONE);
  windows_[static_cast<const std::byte*>(memory)] = {nullptr, data, size, 1};
  return memory;
}

void FakeDevices::CloseDeviceMemory(void* memory) {
  if (const auto pause = Take(&close_pause_)) pause();
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = windows_.find(static_cast<const std::byte*>(memory));
  if (found == windows_.end())
    throw std::logic_error("closed what is not open");
  --open_;
  if (--found->second.times > 0) return;
  const auto size = static_cast<size_t>(found->second.size);
  if (found->second.allocation == nullptr) munmap(found->second.data, size);
  munmap(memory, size);
  windows_.erase(found);
}

bool FakeDevices::CopyFromDevice(void* to, const void* from, size_t bytes,
                                 std::string* error) {
  if (copies_fail_) {
    *error = "the device is gone";
    return false;
  }
  std::memcpy(to, Behind(static_cast<const std::byte*>(from)), bytes);
  return true;
}

bool FakeDevices::PinHost(void* memory, size_t bytes, bool is_read_only) {
  if (pins_fail_) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  return pinned_.emplace(memory, Pinned{bytes, is_read_only}).second;
}

void FakeDevices::UnpinHost(void* memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  pinned_.erase(memory);
}

kernels::BackendInfo FakeDevices::Info() const {
  const kernels::DeviceInfo first{0, "fake", 1, kFirstDevice};
  const kernels::DeviceInfo second{1, "fake", 1, kSecondDevice};
  return {.name = "cuda",
          .instruction_set = "fake",
          .threads = 2,
          .devices = {first, second}};
}

}  // namespace counterweight::server
