#include "server/config/otlp_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "server/base/listen_address.h"
#include "server/config/settings.h"
#include "server/engine/names.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

constexpr std::string_view kEndpoint = "OTEL_EXPORTER_OTLP_ENDPOINT";
constexpr std::string_view kTracesEndpoint =
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
constexpr uint16_t kGrpcPort = 4317;

// Returns the value of a variable; empty if it is not set, which is the same to
// OpenTelemetry.
std::string_view ValueOf(std::span<const std::string> environment,
                         std::string_view name) {
  for (std::string_view entry : environment) {
    if (entry.size() > name.size() && entry.starts_with(name) &&
        entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
  }
  return "";
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Values are percent-encoded, as in W3C Baggage.
std::string PercentDecode(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = i + 2 < text.size() ? HexDigit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? HexDigit(text[i + 2]) : -1;
    if (text[i] == '%' && high >= 0 && low >= 0) {
      decoded += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

// Reads "key=value,key=value".
std::string ReadPairs(std::string_view name, std::string_view text,
                      OtlpOptions::Pairs* pairs) {
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view pair = Trim(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    if (equals == 0 || equals == pair.npos) {
      // Values may be secrets.
      return Concat(name, ": must be key=value pairs, separated by commas");
    }
    pairs->emplace_back(Trim(pair.substr(0, equals)),
                        PercentDecode(Trim(pair.substr(equals + 1))));
  }
  return "";
}

// Metadata keys are lower-case; gRPC aborts at others.
std::string CheckHeaders(OtlpOptions::Pairs* headers) {
  for (auto& [key, value] : *headers) {
    for (char& c : key) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
    }
    const bool is_key = std::all_of(key.begin(), key.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
             c == '_' || c == '.';
    });
    const bool is_value = std::all_of(value.begin(), value.end(), [](char c) {
      return c >= ' ' && c <= '~';
    });
    if (!is_key || !is_value || key.starts_with("grpc-") ||
        key.ends_with("-bin")) {
      return fmt::format(
          "OTEL_EXPORTER_OTLP_HEADERS: {} is no header of visible ASCII",
          Printable(Quote(key)));
    }
  }
  return "";
}

std::string ReadDeadline(std::span<const std::string> environment,
                         std::chrono::milliseconds* deadline) {
  std::string_view name = "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT";
  std::string_view text = ValueOf(environment, name);
  if (text.empty()) {
    text = ValueOf(environment, name = "OTEL_EXPORTER_OTLP_TIMEOUT");
  }
  if (text.empty()) return "";
  constexpr int64_t kMost = 3'600'000;
  int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, count);
  if (read.ec != std::errc() || read.ptr != end || count < 1 || count > kMost) {
    return fmt::format("{}={}: must be milliseconds from 1 to {}", name,
                       Printable(text), kMost);
  }
  *deadline = std::chrono::milliseconds(count);
  return "";
}

std::string ReadEndpoint(std::string_view name, std::string_view url,
                         OtlpOptions* options) {
  std::string wrong =
      fmt::format("{}={}: must be http://host:port or https://host:port", name,
                  Printable(url));
  std::string_view rest = url;
  if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else if (rest.starts_with("https://")) {
    rest.remove_prefix(8);
    options->has_tls = true;
  } else {
    return wrong;
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.empty() || rest.find_first_of("/?#@ ") != rest.npos) return wrong;
  const size_t colon = rest.rfind(':');
  const bool has_port =
      colon != rest.npos && rest.find(']', colon) == rest.npos;
  if (!has_port) {
    options->target = fmt::format("{}:{}", rest, kGrpcPort);
    return "";
  }
  uint16_t port = 0;
  const char* const end = rest.data() + rest.size();
  const auto read = std::from_chars(rest.data() + colon + 1, end, port);
  if (colon == 0 || read.ec != std::errc() || read.ptr != end || port == 0) {
    return wrong;
  }
  options->target = std::string(rest);
  return "";
}

// Whether "host:port" is an address of this machine, whatever its network.
bool IsOnThisMachine(std::string_view target) {
  std::string host(target.substr(0, target.rfind(':')));
  for (char& c : host) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  }
  if (host.ends_with('.')) host.pop_back();
  // A connection to the unspecified address goes to loopback.
  if (host == "localhost" || host.ends_with(".localhost") ||
      host == "0.0.0.0" || host == "[::]") {
    return true;
  }
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  }
  constexpr std::string_view kMapped = "::ffff:";
  if (host.starts_with(kMapped)) host.erase(0, kMapped.size());
  return IsLocal({.host = host, .port = 0, .path = ""});
}

std::string WhyOff(std::span<const std::string> environment) {
  constexpr std::array kProtocols = {
      std::string_view("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"),
      std::string_view("OTEL_EXPORTER_OTLP_PROTOCOL")};
  for (const std::string_view name : kProtocols) {
    const std::string_view protocol = ValueOf(environment, name);
    if (protocol == "grpc") break;
    if (!protocol.empty()) {
      return fmt::format("{}={}: this server sends grpc only", name,
                         Printable(protocol));
    }
  }
  if (ValueOf(environment, "OTEL_SDK_DISABLED") == "true") {
    return "OTEL_SDK_DISABLED=true";
  }
  if (ValueOf(environment, "OTEL_TRACES_EXPORTER") == "none") {
    return "OTEL_TRACES_EXPORTER=none";
  }
  return "";
}

}  // namespace

bool MayUseProxy(const OtlpOptions& options) {
  return !IsOnThisMachine(options.target) &&
         (options.has_tls || options.headers.empty());
}

std::string ReadOtlpOptions(std::span<const std::string> environment,
                            OtlpOptions* options) {
  std::string_view name = kTracesEndpoint;
  std::string_view url = ValueOf(environment, name);
  if (url.empty()) url = ValueOf(environment, name = kEndpoint);
  if (url.empty()) return "";
  options->why_off = WhyOff(environment);
  if (!options->why_off.empty()) return "";
  std::string wrong = ReadEndpoint(name, url, options);
  if (wrong.empty()) wrong = ReadDeadline(environment, &options->deadline);
  if (!wrong.empty()) return wrong;
  constexpr std::string_view kHeaders = "OTEL_EXPORTER_OTLP_HEADERS";
  constexpr std::string_view kResource = "OTEL_RESOURCE_ATTRIBUTES";
  wrong =
      ReadPairs(kHeaders, ValueOf(environment, kHeaders), &options->headers);
  if (wrong.empty()) wrong = CheckHeaders(&options->headers);
  if (wrong.empty()) {
    wrong = ReadPairs(kResource, ValueOf(environment, kResource),
                      &options->resource);
  }
  if (!wrong.empty()) return wrong;
  options->ca_file = ValueOf(environment, "OTEL_EXPORTER_OTLP_CERTIFICATE");
  const std::string_view service = ValueOf(environment, "OTEL_SERVICE_NAME");
  const auto is_name = [](const auto& pair) {
    return pair.first == "service.name";
  };
  if (!service.empty()) {
    std::erase_if(options->resource, is_name);
    options->resource.emplace_back("service.name", service);
  } else if (std::none_of(options->resource.begin(), options->resource.end(),
                          is_name)) {
    options->resource.emplace_back("service.name", "counterweight-server");
  }
  return "";
}

}  // namespace counterweight::server
