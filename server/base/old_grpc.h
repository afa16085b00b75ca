// Defences that only an old gRPC needs.
#ifndef COUNTERWEIGHT_SERVER_BASE_OLD_GRPC_H_
#define COUNTERWEIGHT_SERVER_BASE_OLD_GRPC_H_

#include <span>
#include <string_view>

#include "grpcpp/version_info.h"

namespace counterweight::server {

// Whether this build has the defences. gRPC 1.83, which releases link, bounds
// by itself what resets cost: 1.2 million in 6 s without any defence took 82 MB
// and 0.08 s of an honest client's time. Versions between 1.51, which
// distributions have, and 1.83 were not tried.
inline constexpr bool kHasOldGrpc =
    GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR < 83;

// FloodWatch, Resets, and Flooders, which only these two feed. Named so in the
// log, and in README.md.
inline constexpr std::string_view kOldGrpcDefences[] = {
    "flood_watch", "reset_count", "address_refusal"};

// Those of this build: all or none.
constexpr std::span<const std::string_view> OldGrpcDefences() {
  if constexpr (kHasOldGrpc) return kOldGrpcDefences;
  return {};
}

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_BASE_OLD_GRPC_H_
