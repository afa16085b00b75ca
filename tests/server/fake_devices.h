// A machine with two devices with memory that other processes may open, as with
// CUDA, and a backend that computes there.
#ifndef COUNTERWEIGHT_TESTS_SERVER_FAKE_DEVICES_H_
#define COUNTERWEIGHT_TESTS_SERVER_FAKE_DEVICES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "kernels/corrector.h"

namespace counterweight::server {

inline constexpr kernels::DeviceUuid kFirstDevice = {'f', 'i', 'r', 's', 't'};
inline constexpr kernels::DeviceUuid kSecondDevice = {'s', 'e', 'c', 'n', 'd'};

// One zeroed allocation of a client.
class FakeAllocation {
 public:
  FakeAllocation(kernels::DeviceUuid device, int64_t size);
  FakeAllocation(const FakeAllocation&) = delete;
  FakeAllocation& operator=(const FakeAllocation&) = delete;
  ~FakeAllocation();

  uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }
  const kernels::DeviceUuid& device() const { return device_; }
  const kernels::IpcHandle& handle() const { return handle_; }

 private:
  const kernels::DeviceUuid device_;
  const int64_t size_;
  uint8_t* const data_;
  kernels::IpcHandle handle_{};
};

// The backend. It maps opened memory without access, so that a host access to a
// device's memory crashes. Thread-safe.
class FakeDevices final : public kernels::Corrector {
 public:
  // Registers an allocation, which must outlive every request that names it.
  void Lend(const FakeAllocation& allocation);

  // Number of open allocations, counted once per opening.
  int64_t open() const { return open_; }
  // Later copies to the host fail.
  void BreakCopies() { copies_fail_ = true; }
  // Later corrections fail too, and everything else if `is_lost`.
  void Break(bool is_lost) {
    fails_ = copies_fail_ = true;
    is_lost_ = is_lost;
  }
  bool IsAlive() override { return !is_lost_; }
  // Called once, before the next correction begins.
  void PauseNext(std::function<void()> pause);
  // Called once, before the next memory is closed.
  void PauseNextClose(std::function<void()> pause);

  kernels::CorrectResult Correct(const kernels::CorrectionSpec& spec,
                                 const kernels::Batch& batch,
                                 const kernels::Outputs& outputs) override;
  void* OpenDeviceMemory(const kernels::IpcHandle& handle,
                         const kernels::DeviceUuid& uuid, int64_t* bytes,
                         std::string* error) override;
  // Parts are memfds, of the first device, and whole pages.
  void* OpenDeviceParts(std::span<const int> parts, int64_t part_bytes,
                        const kernels::DeviceUuid& uuid,
                        std::string* error) override;
  void CloseDeviceMemory(void* memory) override;
  bool CopyFromDevice(void* to, const void* from, size_t bytes,
                      std::string* error) override;
  bool PinHost(void* memory, size_t bytes, bool is_read_only) override;
  void UnpinHost(void* memory) override;
  kernels::BackendInfo Info() const override;

  struct Pinned {
    size_t bytes;
    bool is_read_only;
    bool operator==(const Pinned&) const = default;
  };
  std::map<const void*, Pinned> pinned() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return pinned_;
  }
  // Later memory is not pinned.
  void RefusePins() { pins_fail_ = true; }

 private:
  struct Window {
    // Null: parts, which `data` maps. It may be gone when its window closes.
    const FakeAllocation* allocation = nullptr;
    uint8_t* data = nullptr;
    int64_t size = 0;
    int64_t times = 0;
  };

  std::function<void()> Take(std::function<void()>* pause);

  // Translates an address inside a window; returns others unchanged.
  template <typename T>
  T* Behind(T* address) const;

  const std::unique_ptr<kernels::Corrector> cpu_ = kernels::MakeCpuCorrector(2);
  mutable std::mutex mutex_;  // guards the maps and the pauses
  std::map<kernels::IpcHandle, const FakeAllocation*> lent_;
  std::map<const std::byte*, Window> windows_;  // by first byte
  std::map<const void*, Pinned> pinned_;        // by first byte
  std::atomic<bool> pins_fail_ = false;
  std::atomic<int64_t> open_ = 0;
  std::atomic<bool> copies_fail_ = false;
  std::atomic<bool> fails_ = false;
  std::atomic<bool> is_lost_ = false;
  std::function<void()> pause_;
  std::function<void()> close_pause_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_FAKE_DEVICES_H_
