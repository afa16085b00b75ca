// Retries of calls that the server did not admit.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_RETRY_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_RETRY_H_

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>

#include "client/cpp/status.h"
#include "client/cpp/transport/attempt.h"

namespace counterweight::client {

// The pause before the next attempt, without its random part; absent if there
// is no next attempt. `failed` >= 1 attempts have failed. A CANCELLED counts as
// the answer of a server that ends.
std::optional<std::chrono::milliseconds> PauseAfter(const Outcome& outcome,
                                                    int failed);

// Repeats the attempt until an outcome is final, `max_attempts` were made, the
// next pause would pass the deadline, a stop is requested, or the server has
// answered CANCELLED twice. Sets `attempts` to their number.
Status Retry(int max_attempts, std::chrono::steady_clock::time_point deadline,
             const std::stop_token& stop,
             const std::function<Outcome()>& attempt, int* attempts);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_RETRY_H_
