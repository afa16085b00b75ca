// Generates load: calls in succession, or at a rate.
#ifndef COUNTERWEIGHT_CLIENT_CPP_BENCH_LOAD_H_
#define COUNTERWEIGHT_CLIENT_CPP_BENCH_LOAD_H_

#include <functional>
#include <vector>

#include "client/cpp/bench/measurement.h"
#include "client/cpp/bench/settings.h"
#include "client/cpp/request.h"
#include "client/cpp/response.h"
#include "client/cpp/status.h"

namespace counterweight::bench {

// One call of one worker. Many threads call it concurrently, each with requests
// and responses of its own.
using Call =
    std::function<client::Status(const client::Request&, client::Response*)>;

// Runs one worker per request (settings.concurrency of them) for warmup and
// duration, and measures the latter. With a rate, calls begin at fixed times; a
// call for which no worker is free begins late, which its latency shows.
Measurement Load(const Settings& settings,
                 const std::vector<client::Request>& requests,
                 const Call& call);

}  // namespace counterweight::bench

#endif  // COUNTERWEIGHT_CLIENT_CPP_BENCH_LOAD_H_
