// The web server of Prometheus' page and of the page for people.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_METRICS_SERVER_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_METRICS_SERVER_H_

#include <memory>
#include <string>

#include "prometheus/exposer.h"
#include "server/observe/page.h"

namespace counterweight::server {

// Serves /metrics at `address`, "127.0.0.1:9464", and, unless `page` is null,
// "/" and /page.json. `page` must outlive it. A check of who asks belongs into
// the web server's begin_request, which comes before all three. Throws what
// prometheus::Exposer throws if the address cannot be bound.
std::unique_ptr<prometheus::Exposer> ServeMetrics(const std::string& address,
                                                  Page* page);

// The threads that this web server has.
inline constexpr int kMetricsServerThreads = 8 + 1;

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_METRICS_SERVER_H_
