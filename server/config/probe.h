// A client of the server's health, for images without a shell.
#ifndef COUNTERWEIGHT_SERVER_CONFIG_PROBE_H_
#define COUNTERWEIGHT_SERVER_CONFIG_PROBE_H_

#include <string>
#include <string_view>

namespace counterweight::server {

// Returns what is wrong with a target, empty for host:port, [ipv6]:port and
// unix:path.
std::string CheckProbeTarget(std::string_view target);

// A question for a server's health.
struct ProbeRequest {
  std::string target;
  double timeout_s = 1.0;
  // Files of the server's certificate and key, in PEM; empty: without TLS.
  std::string certificate;
  std::string key;
};

// Requests the health of the server at `target` (grpc.health.v1.Health/Check of
// ""). True if it is SERVING. *sentence is the answer, or the reason why there
// is none. REQUIRES: CheckProbeTarget(request.target) is empty.
bool Probe(const ProbeRequest& request, std::string* sentence);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CONFIG_PROBE_H_
