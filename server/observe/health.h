// The server's health as probes and gRPC's health service see it.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_HEALTH_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_HEALTH_H_

#include <cstdint>
#include <string_view>

namespace counterweight::server {

// A later state is never followed by an earlier one.
enum class Health : uint8_t {
  kStarting,
  kReady,
  kDraining,
  kFailed,  // the devices or a listener are lost until the process is replaced
};

constexpr std::string_view Word(Health health) {
  constexpr std::string_view kWords[] = {"starting", "ready", "draining",
                                         "failed"};
  return kWords[static_cast<int>(health)];
}

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_HEALTH_H_
