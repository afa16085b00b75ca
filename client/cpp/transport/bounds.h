// Bounds of a call.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_BOUNDS_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_BOUNDS_H_

#include <chrono>
#include <stop_token>

namespace counterweight::client {

// The end of a call and of all its attempts.
struct Bounds {
  std::chrono::steady_clock::time_point deadline;
  std::stop_token stop;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_BOUNDS_H_
