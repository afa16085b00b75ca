#include "server/config/flags.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>

#include "nlohmann/json.hpp"
#include "server/config/flag_values.h"

namespace counterweight::server {
namespace {

constexpr Flag kFlags[] = {
    {"listen",
     "Where to serve gRPC: ipv4:port, [ipv6]:port, localhost:port (which is "
     "127.0.0.1) or unix:path (created with --socket_mode). Repeat it, or "
     "separate with commas. Port 0 takes a free port and prints it.",
     SetListen, GetListen, kList | kCollects},
    {"metrics_listen",
     "Where to serve Prometheus' /metrics: ipv4:port, [ipv6]:port or "
     "localhost:port. Port 0 takes a free port and prints it; empty turns it "
     "off.",
     SetMetricsListen, GetMetricsListen},
    {"metrics_hosts",
     "Host names, separated by commas, that scrapers and browsers may use for "
     "--metrics_listen without TLS, besides IP addresses, names without dots "
     "and this machine's own: other names are answered 421, because a web page "
     "could point its name here (DNS rebinding).",
     SetMetricsHosts, GetMetricsHosts, kList},
    {"metrics_tls",
     "Speak only TLS there too, where there is --tls_certificate. Probes of "
     "/livez and /readyz need no certificate of their own.",
     SetBoolean<&Config::metrics_tls>, GetBoolean<&Config::metrics_tls>, kBool},
    {"page",
     "Also serve a page for people, with curves of each run, at the root of "
     "--metrics_listen.",
     SetBoolean<&Config::page>, GetBoolean<&Config::page>, kBool},
    {"allow_insecure",
     "Also listen without encryption on addresses that other machines reach: "
     "for gRPC and metrics without --tls_certificate, and for metrics with "
     "--metrics_tls=false.",
     SetBoolean<&Config::allow_insecure>, GetBoolean<&Config::allow_insecure>,
     kBool},
    {"tls_certificate",
     "File with the server's certificate and those between it and the root, in "
     "PEM: TCP listeners then accept only TLS 1.2 and 1.3, and may be reached "
     "from other machines. A changed file is read again, as are the other "
     "files "
     "of TLS. Unix sockets are not encrypted.",
     SetPath<&Config::tls_certificate>, GetPath<&Config::tls_certificate>},
    {"tls_key", "File with its private key, in PEM, without a password.",
     SetPath<&Config::tls_key>, GetPath<&Config::tls_key>},
    {"tls_client_ca",
     "File with authorities, in PEM; one of them must have signed the "
     "certificate of a client (mTLS). Empty: clients need no certificate.",
     SetPath<&Config::tls_client_ca>, GetPath<&Config::tls_client_ca>},
    {"tls_client_names",
     "Subject alternative names (DNS, URI, IP or email), separated by commas; "
     "a "
     "client's certificate must have one of them. Empty: any.",
     SetClientNames, GetClientNames, kList},
    {"tokens",
     "File of lines 'name sha256:HEX', as --hash_token prints them: calls and "
     "scrapes then need one of these tokens, over Unix sockets too; health "
     "does "
     "not. A third word 'runs=team-a-*,eval' binds a token to runs of these "
     "names, where * is any text. A changed file is read again. Tokens alone "
     "do not let the server "
     "leave loopback: they could be read on the network, which TLS prevents.",
     SetPath<&Config::tokens>, GetPath<&Config::tokens>},
    {"backend",
     "Where to compute: cpu, cuda, or auto (cuda if it works, else cpu).",
     SetBackend, GetBackend},
    {"devices",
     "CUDA devices that compute: numbers, separated by commas, as CUDA counts "
     "(see CUDA_VISIBLE_DEVICES), or all. Given, auto never takes the CPU.",
     SetDevices, GetDevices, kList},
    {"threads",
     "Threads that compute, 0 to 4096; 0 takes one for each CPU that the "
     "process may use, by its affinity and its control group's quota.",
     SetInteger<&Config::threads, 0, 4096>, GetInteger<&Config::threads>},
    {"max_message_bytes",
     "Largest request, in bytes after decompression, 1024 to 2147483647.",
     SetInteger<&Config::max_message_bytes, 1024, kMaxInt32>,
     GetInteger<&Config::max_message_bytes>},
    {"max_tokens",
     "Most positions of one request, masked ones included, at least 1.",
     SetInteger<&Config::max_tokens, 1, int64_t{1} << 40>,
     GetInteger<&Config::max_tokens>, kReloadable},
    {"max_sequences", "Most sequences of one request, at least 1.",
     SetInteger<&Config::max_sequences, 1, int64_t{1} << 40>,
     GetInteger<&Config::max_sequences>, kReloadable},
    {"max_connections",
     "Most gRPC connections, 1 to 1048576, as far as the limit of open files "
     "allows two files for each; the newest of the peer that has most gives "
     "way.",
     SetInteger<&Config::max_connections, 1, 1 << 20>,
     GetInteger<&Config::max_connections>},
    {"max_connection_age",
     "Seconds after which the server closes a connection in an orderly way, "
     "and clients open another: balancers that choose a server by connection "
     "then spread clients over new servers. At least 1.",
     SetSecondOrMore<&Config::max_connection_age_s>,
     GetSeconds<&Config::max_connection_age_s>},
    {"max_streams_per_connection",
     "Most calls of one connection at a time, 1 to 65536; clients queue more. "
     "Each takes memory before it is admitted.",
     SetInteger<&Config::max_streams_per_connection, 1, 1 << 16>,
     GetInteger<&Config::max_streams_per_connection>},
    {"max_requests_in_flight", "Most batches at a time; more wait.",
     SetInteger<&Config::max_requests_in_flight, 1, 1 << 20>,
     GetInteger<&Config::max_requests_in_flight>, kReloadable},
    {"max_bytes_in_flight",
     "Most bytes of input, scratch, output and shared memory at a time; more "
     "wait. At least twice max_message_bytes.",
     SetInteger<&Config::max_bytes_in_flight, 1024, int64_t{1} << 50>,
     GetInteger<&Config::max_bytes_in_flight>, kReloadable},
    {"max_queued_requests",
     "Most batches that wait, 0 to 1048576; more are answered "
     "RESOURCE_EXHAUSTED with a retry hint.",
     SetInteger<&Config::max_queued_requests, 0, 1 << 20>,
     GetInteger<&Config::max_queued_requests>, kReloadable},
    {"max_queue_seconds",
     "Longest that a batch waits; then it is answered RESOURCE_EXHAUSTED with "
     "a retry hint.",
     SetSeconds<&Config::max_queue_seconds>,
     GetSeconds<&Config::max_queue_seconds>, kReloadable},
    {"stream_timeout",
     "Seconds after which a stream that stalls is ended; see "
     "min_stream_bytes_per_second. At least 0.01.",
     SetSeconds<&Config::stream_timeout_s>,
     GetSeconds<&Config::stream_timeout_s>},
    {"unary_timeout",
     "Seconds that a unary request has to arrive whole, and that its client "
     "has to take the answer. At least 0.01.",
     SetSeconds<&Config::unary_timeout_s>,
     GetSeconds<&Config::unary_timeout_s>},
    {"min_stream_bytes_per_second",
     "Least that a stream has to move over stream_timeout, 1 to 1073741824; a "
     "sixtieth of what it reserved, if that is more.",
     SetInteger<&Config::min_stream_bytes_per_second, 1, 1 << 30>,
     GetInteger<&Config::min_stream_bytes_per_second>, kReloadable},
    {"shared_memory_socket",
     "Path of a Unix socket (created with --socket_mode) where clients of this "
     "machine and user share memory; empty turns it off.",
     SetPath<&Config::shared_memory_socket>,
     GetPath<&Config::shared_memory_socket>},
    {"shared_memory_uids",
     "Numbers of users, separated by commas, that may share memory too; the "
     "server's own user always may. They also need --socket_mode.",
     SetUids, GetUids, kList},
    {"socket_mode",
     "Mode of the files of Unix sockets, octal, 0600 to 0666: who may connect.",
     SetSocketModeFlag, GetSocketModeFlag},
    {"max_shared_memory_bytes",
     "Most bytes that one connection shares, at least 4096.",
     SetInteger<&Config::max_shared_memory_bytes, 4096, int64_t{1} << 50>,
     GetInteger<&Config::max_shared_memory_bytes>},
    {"device_memory_bytes",
     "Most bytes of each GPU's memory that batches take; 0: nine tenths of "
     "what "
     "is free at the start. What none needed for ten seconds is given back.",
     SetInteger<&Config::device_memory_bytes, 0, int64_t{1} << 50>,
     GetInteger<&Config::device_memory_bytes>},
    {"max_runs",
     "Most values of the label run in the drift metrics; the idlest leaves.",
     SetInteger<&Config::max_runs, 1, 1 << 20>, GetInteger<&Config::max_runs>},
    {"max_runs_per_client",
     "Most values of the label run for one client (one IP address).",
     SetInteger<&Config::max_runs_per_client, 1, 1 << 20>,
     GetInteger<&Config::max_runs_per_client>},
    {"drift_gauge_window",
     "Seconds after a run's last batch here until its gauges leave /metrics, "
     "at "
     "least 1: longer than its pause between two steps. Counters and "
     "histograms stay, and gauges return with the next batch.",
     SetSecondOrMore<&Config::drift_gauge_window_s>,
     GetSeconds<&Config::drift_gauge_window_s>},
    {"drain_delay",
     "Seconds between SIGTERM, when health turns NOT_SERVING, and the refusal "
     "of new requests: time for balancers to look elsewhere.",
     SetSeconds<&Config::drain_delay_s>, GetSeconds<&Config::drain_delay_s>,
     kReloadable},
    {"drain_timeout",
     "Seconds that requests in flight then have to finish before the server "
     "exits without them.",
     SetSeconds<&Config::drain_timeout_s>, GetSeconds<&Config::drain_timeout_s>,
     kReloadable},
    {"log_level",
     "Least severe log line on stderr: debug, info, warning, error or off.",
     SetLogLevel, GetLogLevel, kReloadable},
};

}  // namespace

std::span<const Flag> Flags() { return kFlags; }

const Flag* FindFlag(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kFlags), std::end(kFlags),
                   [&](const Flag& flag) { return flag.name == name; });
  return found == std::end(kFlags) ? nullptr : found;
}

nlohmann::ordered_json ToJson(const Config& config) {
  nlohmann::ordered_json json;
  for (const Flag& flag : kFlags) {
    json[std::string(flag.name)] = flag.get(config);
  }
  return json;
}

}  // namespace counterweight::server
