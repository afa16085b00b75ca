// The metrics port: Prometheus' page, the page for people, probes.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_METRICS_SERVER_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_METRICS_SERVER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "prometheus/collectable.h"
#include "server/access/access.h"
#include "server/base/listen_address.h"
#include "server/observe/health.h"
#include "server/observe/page.h"
#include "server/observe/web_server.h"

namespace counterweight::server {

// All must outlive the web server.
struct MetricsSources {
  std::vector<std::shared_ptr<prometheus::Collectable>> metrics;
  const Page* page = nullptr;  // null: none
  const std::atomic<Health>* health = nullptr;
  Access* access = nullptr;
  std::vector<std::string> hosts;  // names that clients may use
};

// Serves /metrics at `address` and, if there is a page, "/" and /page.json.
// /livez and /readyz answer 200 or 503 with the word for the health: alive
// until it has failed, ready while it is. `access` decides who may read the
// others, by certificate and by bearer token or, for browsers, by a password
// that is a token; without TLS a foreign Host is answered 421. *port is the one
// that was chosen. Fails with a sentence that names the address. REQUIRES:
// access->has_tls() if `with_tls`.
absl::StatusOr<std::unique_ptr<WebServer>> ServeMetrics(
    const ListenAddress& address, bool with_tls, MetricsSources sources,
    uint16_t* port);

// The threads that this web server has.
inline constexpr int kMetricsServerThreads = 1;

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_METRICS_SERVER_H_
