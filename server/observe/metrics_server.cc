#include "server/observe/metrics_server.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/gzip_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "prometheus/text_serializer.h"
#include "server/base/config_error.h"
#include "server/base/tcp_socket.h"
#include "server/observe/web_request.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

// Names of runs are at most 64 bytes; a longer one is no run's.
constexpr size_t kMaxRunBytes = 256;

// Kubernetes' probes have neither token nor certificate, and learn one bit.
constexpr std::string_view kOpenPaths[] = {"/livez", "/readyz"};

constexpr const char* kText = "Content-Type: text/plain\r\n";

struct Reply {
  const char* status = "200 OK";
  WebAnswer answer;
};

// The whole of it, as it is sent.
std::string Whole(const Reply& reply, bool with_body) {
  const WebAnswer& answer = reply.answer;
  std::string whole = fmt::format(
      "HTTP/1.1 {}\r\n{}Content-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
      "Connection: close\r\n\r\n",
      reply.status, answer.headers, answer.body.size());
  if (with_body) whole += answer.body;
  return whole;
}

Reply HealthReply(Health health, bool is_well) {
  return {is_well ? "200 OK" : "503 Service Unavailable",
          {.headers = kText, .body = fmt::format("{}\n", Word(health))}};
}

std::string Gzip(const std::string& text) {
  std::string packed;
  {
    google::protobuf::io::StringOutputStream sink(&packed);
    google::protobuf::io::GzipOutputStream::Options options;
    options.compression_level = 1;
    google::protobuf::io::GzipOutputStream gzip(&sink, options);
    google::protobuf::io::CodedOutputStream(&gzip).WriteRaw(
        text.data(), static_cast<int>(text.size()));
  }
  return packed;
}

// All that the web server's thread uses.
class Pages {
 public:
  explicit Pages(MetricsSources sources) : sources_(std::move(sources)) {}

  std::string Answer(const WebRequest& request) {
    return Whole(ReplyTo(request), request.method != "HEAD");
  }

 private:
  using Clock = std::chrono::steady_clock;

  Reply ReplyTo(const WebRequest& request) {
    if (request.method != "GET" && request.method != "HEAD") {
      return {"405 Method Not Allowed",
              {.headers = "Allow: GET, HEAD\r\n", .body = ""}};
    }
    const std::string_view path = request.path;
    const bool is_open = std::find(std::begin(kOpenPaths), std::end(kOpenPaths),
                                   path) != std::end(kOpenPaths);
    if (!is_open && !IsForUs(request)) {
      return {"421 Misdirected Request",
              {.headers = kText,
               .body = "this server has another name: ask by IP address, or "
                       "add the name to --metrics_hosts\n"}};
    }
    if (!is_open) {
      std::optional<Reply> refusal = Refusal(request);
      if (refusal) return *std::move(refusal);
    }
    const Health health = *sources_.health;
    // A server that drains is alive, or it would be killed at its work.
    if (path == "/livez") return HealthReply(health, health != Health::kFailed);
    if (path == "/readyz") return HealthReply(health, health == Health::kReady);
    if (path == "/metrics") {
      return Metrics(TakesGzip(request.accept_encoding), request.arrived);
    }
    if (sources_.page != nullptr && path == "/") {
      return {.answer = sources_.page->Html()};
    }
    if (sources_.page != nullptr && path == "/page.json") {
      const std::string run = QueryValue(request.query, "run");
      return {.answer = sources_.page->Data(
                  run.size() <= kMaxRunBytes ? run : std::string())};
    }
    return {"404 Not Found",
            {.headers = kText, .body = "no such page; see /metrics\n"}};
  }

  // With TLS a browser has compared the name with the certificate.
  bool IsForUs(const WebRequest& request) const {
    return request.is_tls || request.host.empty() ||
           IsOwnHost(request.host, sources_.hosts);
  }

  std::optional<Reply> Refusal(const WebRequest& request) const {
    const std::string authorization = BearerOf(request.authorization);
    const grpc::Status status = sources_.access->Check(
        {.authorization = authorization,
         .has_several = false,
         .needs_token = true,
         .is_tls = request.is_tls,
         .has_certificate = request.peer.is_given,
         .names = {request.peer.names.begin(), request.peer.names.end()},
         .certificate = {},
         .certificate_chain = {}});
    if (status.ok()) return std::nullopt;
    Reply reply{"403 Forbidden",
                {.headers = kText, .body = status.error_message() + "\n"}};
    if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
      reply.status = "401 Unauthorized";
      reply.answer.headers =
          "WWW-Authenticate: Bearer\r\n"
          "WWW-Authenticate: Basic realm=\"a token is the password\"\r\n"
          "Content-Type: text/plain\r\n";
    }
    return reply;
  }

  // Many at once cost one page: a request gets the last one too if that was
  // begun after the request had arrived.
  const Reply& Metrics(bool gzip, Clock::time_point arrived) {
    LastPage& last = last_pages_[gzip ? 1 : 0];
    if (last.begun <= arrived) {
      const Clock::time_point begun = Clock::now();
      last = {.begun = begun, .reply = MakeMetrics(gzip)};
    }
    return last.reply;
  }

  Reply MakeMetrics(bool gzip) const {
    std::vector<prometheus::MetricFamily> families;
    for (const auto& each : sources_.metrics) {
      std::vector<prometheus::MetricFamily> found = each->Collect();
      std::move(found.begin(), found.end(), std::back_inserter(families));
    }
    Reply reply{
        .answer = {
            .headers =
                "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
            .body = prometheus::TextSerializer().Serialize(families)}};
    if (gzip) {
      reply.answer.headers += "Content-Encoding: gzip\r\n";
      reply.answer.body = Gzip(reply.answer.body);
    }
    return reply;
  }

  struct LastPage {
    Clock::time_point begun = Clock::time_point::min();
    Reply reply;
  };

  const MetricsSources sources_;
  std::array<LastPage, 2> last_pages_;  // plain, gzip
};

}  // namespace

absl::StatusOr<std::unique_ptr<WebServer>> ServeMetrics(
    const ListenAddress& address, bool with_tls, MetricsSources sources,
    uint16_t* port) {
  FileDescriptor listening;
  std::string cause = ListenTcp(address, &listening, port);
  if (cause.empty()) {
    WebServer::TlsContext tls;
    if (with_tls) {
      tls = [access = sources.access] { return access->tls()->context; };
    }
    try {
      return std::make_unique<WebServer>(
          std::move(listening),
          [pages = std::make_shared<Pages>(std::move(sources))](
              const WebRequest& request) { return pages->Answer(request); },
          std::move(tls));
    } catch (const std::exception& error) {
      cause = error.what();
    }
  }
  return ConfigError(fmt::format("cannot listen on --metrics_listen={}: {}",
                                 address.ToString(), cause));
}

}  // namespace counterweight::server
