// The web server of Prometheus' page and of the page for people.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_METRICS_SERVER_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_METRICS_SERVER_H_

#include <atomic>
#include <memory>
#include <string>

#include "prometheus/exposer.h"
#include "server/access/access.h"
#include "server/observe/health.h"
#include "server/observe/page.h"

namespace counterweight::server {

// Serves /metrics at `address`, "127.0.0.1:9464", and, unless `page` is null,
// "/" and /page.json. /livez and /readyz answer 200 or 503 with the word for
// `health`: alive until it has failed, ready while it is. `access` decides who
// may ask for the others, by bearer token or, for browsers, by a password that
// is a token. All must outlive it. Throws what prometheus::Exposer throws if
// the address cannot be bound.
std::unique_ptr<prometheus::Exposer> ServeMetrics(
    const std::string& address, Page* page, const std::atomic<Health>* health,
    Access* access);

// False if the web server's library was compiled without IPv6, as Debian 12's
// is: ServeMetrics then throws for such an address.
bool CanServeMetricsOverIpv6();

// Stops it, whose `address` is a numeric host and the port that was chosen.
void StopMetrics(std::unique_ptr<prometheus::Exposer> exposer,
                 const std::string& address);

// The threads that this web server has.
inline constexpr int kMetricsServerThreads = 8 + 1;

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_METRICS_SERVER_H_
