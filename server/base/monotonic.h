// Deadlines for gRPC that hold when the wall clock is set.
#ifndef COUNTERWEIGHT_SERVER_BASE_MONOTONIC_H_
#define COUNTERWEIGHT_SERVER_BASE_MONOTONIC_H_

#include <chrono>

#include "grpc/support/time.h"

namespace counterweight::server {

// The time `wait` from now.
inline gpr_timespec After(std::chrono::duration<double> wait) {
  return gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC),
      gpr_time_from_nanos(
          std::chrono::duration_cast<std::chrono::nanoseconds>(wait).count(),
          GPR_TIMESPAN));
}

// `deadline` of a call, as grpc::ServerContext::raw_deadline() has it.
inline bool HasPassed(gpr_timespec deadline) {
  return gpr_time_cmp(gpr_convert_clock_type(deadline, GPR_CLOCK_MONOTONIC),
                      gpr_now(GPR_CLOCK_MONOTONIC)) <= 0;
}

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_BASE_MONOTONIC_H_
