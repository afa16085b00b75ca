// How Prometheus' page is served.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_METRICS_SERVER_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_METRICS_SERVER_H_

#include <string>
#include <vector>

namespace counterweight::server {

// Names and values of options, in turns, for prometheus::Exposer's web server,
// which listens at `address`, "127.0.0.1:9464".
std::vector<std::string> MetricsServerOptions(const std::string& address);

// The threads that this web server has.
inline constexpr int kMetricsServerThreads = 8 + 1;

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_METRICS_SERVER_H_
