// Where traces go: the environment variables of OpenTelemetry.
#ifndef COUNTERWEIGHT_SERVER_CONFIG_OTLP_OPTIONS_H_
#define COUNTERWEIGHT_SERVER_CONFIG_OTLP_OPTIONS_H_

#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace counterweight::server {

// opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables.
struct OtlpOptions {
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  // "host:port"; empty: no traces.
  std::string target;
  bool has_tls = false;
  std::string ca_file;  // PEM; empty: the system's authorities
  Pairs headers;        // metadata of each export
  Pairs resource;       // attributes; service.name is among them
  std::chrono::milliseconds deadline{2000};  // of each export
  // A sentence for the log if OTEL_EXPORTER_OTLP_ENDPOINT is set and another
  // variable turns traces off.
  std::string why_off;
};

// Reads OTEL_EXPORTER_OTLP_ENDPOINT ("http://host:4317", "https://host:4317"),
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, which wins, OTEL_EXPORTER_OTLP_PROTOCOL,
// OTEL_EXPORTER_OTLP_TIMEOUT (ms), OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, which
// wins, OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE,
// OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_EXPORTER and
// OTEL_SDK_DISABLED. `environment` has entries "NAME=value"; without an
// endpoint the others are not read. Returns a sentence that names the variable
// with a wrong value, or an empty string.
std::string ReadOtlpOptions(std::span<const std::string> environment,
                            OtlpOptions* options);

// Whether a proxy of the environment (http_proxy, grpc_proxy) may be between
// server and collector: not if the collector is on this machine, and not if it
// could read the headers, which are often tokens.
bool MayUseProxy(const OtlpOptions& options);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CONFIG_OTLP_OPTIONS_H_
