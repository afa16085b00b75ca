#include "client/cpp/options.h"

#include <utility>
#include <vector>

namespace counterweight::client {
namespace {

constexpr Transport kTransports[] = {Transport::kAuto, Transport::kUnary,
                                     Transport::kStream,
                                     Transport::kSharedMemory};
// gRPC stores the length of a message in an int.
constexpr size_t kMostChunkBytes = size_t{1} << 30;
// gRPC stores milliseconds in an int.
constexpr std::chrono::milliseconds kMostKeepalive = std::chrono::hours(24);

}  // namespace

std::string_view ToString(Transport transport) {
  switch (transport) {
    case Transport::kAuto:
      return "auto";
    case Transport::kUnary:
      return "unary";
    case Transport::kStream:
      return "stream";
    case Transport::kSharedMemory:
      return "shared_memory";
  }
  return "";
}

bool ParseTransport(std::string_view name, Transport* transport) {
  for (const Transport candidate : kTransports) {
    if (name != ToString(candidate)) continue;
    *transport = candidate;
    return true;
  }
  return false;
}

Status Validate(const Options& options) {
  std::vector<FieldViolation> violations;
  if (options.timeout.count() <= 0) {
    violations.push_back({"options.timeout", "must be above 0"});
  }
  if (options.max_attempts < 1) {
    violations.push_back({"options.max_attempts", "must be at least 1"});
  }
  if (options.max_in_flight < 1) {
    violations.push_back({"options.max_in_flight", "must be at least 1"});
  }
  if (options.chunk_bytes > kMostChunkBytes) {
    violations.push_back(
        {"options.chunk_bytes", "must be at most 1073741824, or 0"});
  }
  for (const auto& [field, value] :
       {std::pair("options.keepalive_interval", options.keepalive_interval),
        std::pair("options.keepalive_timeout", options.keepalive_timeout)}) {
    if (value < std::chrono::seconds(1) || value > kMostKeepalive) {
      violations.push_back({field, "must be from 1 s to 24 h"});
    }
  }
  if (options.service.empty()) {
    violations.push_back({"options.service", "must not be empty"});
  }
  return violations.empty() ? Status{} : InvalidArgument(std::move(violations));
}

}  // namespace counterweight::client
