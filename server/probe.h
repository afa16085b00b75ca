// A client of the server's health, for images without a shell.
#ifndef COUNTERWEIGHT_SERVER_PROBE_H_
#define COUNTERWEIGHT_SERVER_PROBE_H_

#include <string>
#include <string_view>

namespace counterweight::server {

// Returns what is wrong with a target, empty for host:port, [ipv6]:port and
// unix:path.
std::string CheckProbeTarget(std::string_view target);

// Asks the server at `target` for its health (grpc.health.v1.Health/Check of
// "") and waits `timeout_s` seconds at most. True if it is SERVING. *sentence
// says what the answer was, or why there is none.
// REQUIRES: CheckProbeTarget(target) is empty.
bool Probe(const std::string& target, double timeout_s, std::string* sentence);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_PROBE_H_
