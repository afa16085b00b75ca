#include "kernels/devices.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "kernels/opened_memory.h"

namespace counterweight::kernels {
namespace {

struct Device {
  std::unique_ptr<Corrector> corrector;
  DeviceInfo info;
  int64_t positions_in_work = 0;
  bool is_lost = false;
};

// Tracks the work of each device and picks devices for batches. Thread-safe.
class Devices {
 public:
  explicit Devices(std::vector<std::unique_ptr<Corrector>> correctors) {
    for (std::unique_ptr<Corrector>& corrector : correctors) {
      DeviceInfo info = corrector->Info().devices.front();
      devices_.push_back({std::move(corrector), std::move(info)});
    }
  }

  size_t size() const { return devices_.size(); }
  Corrector& corrector(size_t device) const {
    return *devices_[device].corrector;
  }
  const DeviceInfo& info(size_t device) const { return devices_[device].info; }

  // Picks the device with the least work that is not in `tried`, and a lost
  // device only if there is no other; nothing if all were tried. Adds
  // `positions` to its work.
  std::optional<size_t> Choose(int64_t positions,
                               const std::vector<bool>& tried) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::optional<size_t> best;
    for (size_t i = 0; i < devices_.size(); ++i) {
      if (tried[i]) continue;
      if (!best || Rank(devices_[i]) < Rank(devices_[*best])) best = i;
    }
    if (best) devices_[*best].positions_in_work += positions;
    return best;
  }

  void Add(size_t device, int64_t positions) {
    const std::lock_guard<std::mutex> lock(mutex_);
    devices_[device].positions_in_work += positions;
  }

  void Lose(size_t device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    devices_[device].is_lost = true;
  }

  bool IsLost(size_t device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return devices_[device].is_lost;
  }

 private:
  static std::pair<bool, int64_t> Rank(const Device& device) {
    return {device.is_lost, device.positions_in_work};
  }

  std::mutex mutex_;  // guards the work and the losses
  std::vector<Device> devices_;
};

// Holds a batch's share of a device's work.
class Place {
 public:
  // REQUIRES: the device's work includes the positions already.
  Place(Devices* devices, size_t device, int64_t positions)
      : devices_(devices), device_(device), positions_(positions) {}
  ~Place() { devices_->Add(device_, -positions_); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  size_t device() const { return device_; }

 private:
  Devices* const devices_;
  const size_t device_;
  const int64_t positions_;
};

// A run on one device, and on the next one if the first is out of memory.
class DevicesRun final : public CorrectRun {
 public:
  // `owner` is the device of the batch's memory; empty if any device will do.
  DevicesRun(Devices* devices, std::optional<size_t> owner,
             const CorrectionSpec& spec, const Batch& batch,
             const Outputs& outputs, StopRequest stop)
      : devices_(*devices),
        spec_(spec),
        batch_(batch),
        outputs_(outputs),
        stop_(std::move(stop)),
        positions_(batch.offsets[batch.num_sequences]),
        tried_(devices->size(), owner.has_value()) {
    if (owner) {
      devices_.Add(*owner, positions_);
    } else {
      owner = devices_.Choose(positions_, tried_);
    }
    BeginOn(*owner);
  }

  void Advance(int64_t rows, bool has_mask) override {
    run_->Advance(rows, has_mask);
  }

  Turn TakeTurn(std::function<void()> wake) override {
    for (;;) {
      const Turn turn = run_->TakeTurn(wake);
      if (turn != Turn::kNever) return turn;
      const std::optional<size_t> next = devices_.Choose(positions_, tried_);
      if (!next) return turn;
      BeginOn(*next);
    }
  }

  CorrectResult Finish() override {
    for (;;) {
      CorrectResult result = run_->Finish();
      const size_t device = place_->device();
      result.device = devices_.info(device).index;
      if (result.status == CorrectStatus::kDeviceLost) devices_.Lose(device);
      if (result.status != CorrectStatus::kDeviceFull) return result;
      const std::optional<size_t> next = devices_.Choose(positions_, tried_);
      if (!next) return result;
      BeginOn(*next);
    }
  }

 private:
  void BeginOn(size_t device) {
    run_.reset();
    place_.emplace(&devices_, device, positions_);
    tried_[device] = true;
    run_ = devices_.corrector(device).Begin(spec_, batch_, outputs_, stop_);
  }

  Devices& devices_;
  const CorrectionSpec spec_;
  const Batch batch_;
  const Outputs outputs_;
  const StopRequest stop_;
  const int64_t positions_;
  std::vector<bool> tried_;
  std::optional<Place> place_;
  std::unique_ptr<CorrectRun> run_;
};

class DevicesCorrector final : public Corrector {
 public:
  explicit DevicesCorrector(std::vector<std::unique_ptr<Corrector>> devices)
      : devices_(std::move(devices)) {}

  CorrectResult Correct(const CorrectionSpec& spec, const Batch& batch,
                        const Outputs& outputs) override {
    return DevicesRun(&devices_, Owner(batch, outputs), spec, batch, outputs,
                      nullptr)
        .Finish();
  }

  std::unique_ptr<CorrectRun> Begin(const CorrectionSpec& spec,
                                    const Batch& batch, const Outputs& outputs,
                                    StopRequest stop) override {
    return std::make_unique<DevicesRun>(&devices_, Owner(batch, outputs), spec,
                                        batch, outputs, std::move(stop));
  }

  int64_t ScratchBytes(const CorrectionSpec& spec,
                       const Batch& batch) const override {
    int64_t most = 0;
    for (size_t i = 0; i < devices_.size(); ++i) {
      most = std::max(most, devices_.corrector(i).ScratchBytes(spec, batch));
    }
    return most;
  }

  // Memory that is pinned for one device is pinned for all.
  void* AllocateHost(size_t bytes) override {
    return devices_.corrector(0).AllocateHost(bytes);
  }
  void FreeHost(void* memory) override {
    devices_.corrector(0).FreeHost(memory);
  }
  bool PinHost(void* memory, size_t bytes, bool is_read_only) override {
    return devices_.corrector(0).PinHost(memory, bytes, is_read_only);
  }
  void UnpinHost(void* memory) override {
    devices_.corrector(0).UnpinHost(memory);
  }

  void* OpenDeviceMemory(const IpcHandle& handle, const DeviceUuid& uuid,
                         int64_t* bytes, std::string* error) override {
    return Open(uuid, error, [&](Corrector& device, int64_t* opened) {
      void* const memory = device.OpenDeviceMemory(handle, uuid, bytes, error);
      *opened = *bytes;
      return memory;
    });
  }

  void* OpenDeviceParts(std::span<const int> parts, int64_t part_bytes,
                        const DeviceUuid& uuid, std::string* error) override {
    return Open(uuid, error, [&](Corrector& device, int64_t* opened) {
      *opened = part_bytes * static_cast<int64_t>(parts.size());
      return device.OpenDeviceParts(parts, part_bytes, uuid, error);
    });
  }

  void CloseDeviceMemory(void* memory) override {
    const std::optional<size_t> device = memory_.Remove(memory);
    if (device) devices_.corrector(*device).CloseDeviceMemory(memory);
  }

  bool CopyFromDevice(void* to, const void* from, size_t bytes,
                      std::string* error) override {
    const std::optional<size_t> device = memory_.DeviceOf(from);
    if (!device) {
      *error = "the memory to copy is not open";
      return false;
    }
    return devices_.corrector(*device).CopyFromDevice(to, from, bytes, error);
  }

  void ReturnUnused() override {
    for (size_t i = 0; i < devices_.size(); ++i) {
      if (!devices_.IsLost(i)) devices_.corrector(i).ReturnUnused();
    }
  }

  bool IsAlive() override {
    bool any = false;
    for (size_t i = 0; i < devices_.size(); ++i) {
      if (devices_.IsLost(i)) continue;
      if (devices_.corrector(i).IsAlive()) {
        any = true;
      } else {
        devices_.Lose(i);
      }
    }
    return any;
  }

  BackendInfo Info() const override {
    BackendInfo info = devices_.corrector(0).Info();
    for (size_t i = 1; i < devices_.size(); ++i) {
      info.devices.push_back(devices_.info(i));
    }
    return info;
  }

 private:
  // open(corrector, bytes): opens memory on the device, or returns null with
  // *error.
  template <class F>
  void* Open(const DeviceUuid& uuid, std::string* error, F open) {
    for (size_t i = 0; i < devices_.size(); ++i) {
      if (devices_.info(i).uuid != uuid) continue;
      int64_t bytes = 0;
      void* const memory = open(devices_.corrector(i), &bytes);
      if (memory != nullptr) memory_.Add(memory, bytes, i);
      return memory;
    }
    *error = "the memory lies on a device that the server does not compute on";
    return nullptr;
  }

  std::optional<size_t> Owner(const Batch& batch,
                              const Outputs& outputs) const {
    std::vector<const void*> memory = {
        outputs.weights,          outputs.keep_mask, outputs.token_reasons,
        outputs.sequence_reasons, outputs.gradient,  batch.response_mask};
    for (const TensorView& tensor : batch.tensors) {
      memory.push_back(tensor.data);
    }
    for (const void* begin : memory) {
      const std::optional<size_t> device = memory_.DeviceOf(begin);
      if (device) return device;
    }
    return std::nullopt;
  }

  Devices devices_;
  OpenedMemory memory_;
};

}  // namespace

std::unique_ptr<Corrector> MakeDevicesCorrector(
    std::vector<std::unique_ptr<Corrector>> devices) {
  return std::make_unique<DevicesCorrector>(std::move(devices));
}

}  // namespace counterweight::kernels
