#include "server/backend.h"

#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/devices.h"
#include "nlohmann/json.hpp"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

BackendChoice MakeCpu(const Config& config) {
  auto corrector = kernels::MakeCpuCorrector(NumThreads(config));
  if (corrector == nullptr) {
    return {nullptr,
            "--backend=cpu: this machine lacks the instruction set that this "
            "build needs"};
  }
  return {std::move(corrector), ""};
}

// Returns null and a sentence in *reason if one of them cannot be used.
std::unique_ptr<kernels::Corrector> MakeCuda(const DeviceChoice& choice,
                                             int64_t memory_bytes,
                                             std::string* reason) {
  const int count = kernels::NumCudaDevices(reason);
  if (count == 0) return nullptr;
  std::vector<int> indices = choice.indices;
  if (choice.all) {
    indices.resize(static_cast<size_t>(count));
    std::iota(indices.begin(), indices.end(), 0);
  }
  std::vector<std::unique_ptr<kernels::Corrector>> devices;
  for (const int index : indices) {
    if (index >= count) {
      *reason = fmt::format(
          "there is no device {}; CUDA shows this process {}, counted from 0",
          index, count);
      return nullptr;
    }
    devices.push_back(kernels::MakeCudaCorrector(index, memory_bytes, reason));
    if (devices.back() == nullptr) return nullptr;
  }
  return kernels::MakeDevicesCorrector(std::move(devices));
}

}  // namespace

BackendChoice MakeCorrector(const Config& config) {
  if (config.backend == Backend::kCpu) return MakeCpu(config);
  std::string reason;
  auto corrector =
      MakeCuda(config.devices, config.device_memory_bytes, &reason);
  if (corrector != nullptr) return {std::move(corrector), ""};
  if (config.devices.is_given) {
    return {nullptr,
            fmt::format("--devices={}: {}", ToString(config.devices), reason)};
  }
  if (config.backend == Backend::kCuda) {
    return {nullptr, "--backend=cuda: " + reason};
  }
  BackendChoice cpu = MakeCpu(config);
  if (cpu.corrector != nullptr) cpu.reason = std::move(reason);
  return cpu;
}

nlohmann::ordered_json ToJson(const kernels::BackendInfo& backend) {
  auto devices = nlohmann::ordered_json::array();
  for (const kernels::DeviceInfo& device : backend.devices) {
    devices.push_back({{"index", device.index},
                       {"name", device.name},
                       {"memory_bytes", device.memory_bytes}});
  }
  return {{"name", backend.name},
          {"instruction_set", backend.instruction_set},
          {"devices", std::move(devices)}};
}

}  // namespace counterweight::server
