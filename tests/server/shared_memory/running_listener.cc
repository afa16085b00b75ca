#include "tests/server/shared_memory/running_listener.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "spdlog/fmt/fmt.h"
#include "spdlog/sinks/ostream_sink.h"

namespace counterweight::server {
namespace {

std::shared_ptr<spdlog::logger> LoggerTo(std::ostream& out) {
  auto logger = std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(out));
  logger->set_pattern("%v");
  logger->set_level(spdlog::level::debug);
  return logger;
}

}  // namespace

SharedMemoryListener::Options TestOptions() {
  return {.path = "",
          .max_bytes = 16 * kMebibyte,
          .max_regions = 8,
          .max_connections = 4};
}

RunningListener::RunningListener(SharedMemoryListener::Options options,
                                 int64_t max_bytes_in_flight)
    : log_(LoggerTo(log_text_)),
      admission_({.max_requests = 8,
                  .max_bytes = max_bytes_in_flight,
                  .max_queued = 0}) {
  options.path = path_;
  std::string error;
  listener_ = SharedMemoryListener::Start(options, &admission_, &log_, &error);
  if (listener_ == nullptr) throw std::runtime_error(error);
}

int CountDescriptors() {
  const std::filesystem::directory_iterator descriptors("/proc/self/fd");
  return static_cast<int>(std::distance(begin(descriptors), end(descriptors)));
}

int WaitForDescriptors(int count) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (CountDescriptors() > count && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  return CountDescriptors();
}

int CountMemfdMappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(kMemfdName) != std::string::npos) ++count;
  }
  return count;
}

std::string PermissionsOf(const void* data) {
  const std::string begin =
      fmt::format("{:x}-", reinterpret_cast<uintptr_t>(data));
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with(begin)) return line.substr(line.find(' ') + 1, 4);
  }
  return "";
}

}  // namespace counterweight::server
