// When a call that was not admitted is tried again.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_RETRY_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_RETRY_H_

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>

#include "client/cpp/status.h"
#include "client/cpp/transport/attempt.h"

namespace counterweight::client {

// The pause before the next attempt, without its random part; none if there is
// to be no other. `failed` attempts have failed, at least one.
std::optional<std::chrono::milliseconds> PauseAfter(const Outcome& outcome,
                                                    int failed);

// Tries until an outcome is final, `max_attempts` were made, the next pause
// would pass the deadline, or a stop is requested. `attempts` gets how many it
// were.
Status Retry(int max_attempts, std::chrono::steady_clock::time_point deadline,
             const std::stop_token& stop,
             const std::function<Outcome()>& attempt, int* attempts);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_RETRY_H_
