#include "server/observe/metrics_server.h"

#include <array>
#include <string_view>
#include <vector>

#include "CivetServer.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

// A connection has a thread until it is answered. One more accepts.
constexpr int kConnections = kMetricsServerThreads - 1;

// For the whole request to arrive, and for each part of the answer to leave. A
// scraper sends its request in one piece: only a connection that is stuck needs
// longer, and scrapes wait for its thread.
constexpr int kTimeoutMilliseconds = 2000;

// Names of runs are at most 64 bytes; a longer one is no run's.
constexpr size_t kMaxRunBytes = 256;

std::vector<std::string> Options(const std::string& address) {
  return {
      // clang-format off
      "listening_ports", address,
      "num_threads", std::to_string(kConnections),
      "request_timeout_ms", std::to_string(kTimeoutMilliseconds),
      // An idle connection would keep its thread.
      "enable_keep_alive", "no",
      // There are no files; the library would list them by default.
      "enable_directory_listing", "no",
      // clang-format on
  };
}

int Send(mg_connection* connection, const WebAnswer& answer) {
  const std::string_view method =
      mg_get_request_info(connection)->request_method;
  if (method != "GET" && method != "HEAD") {
    constexpr std::string_view kRefused =
        "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\n"
        "Content-Length: 0\r\nConnection: close\r\n\r\n";
    mg_write(connection, kRefused.data(), kRefused.size());
    return 405;
  }
  const std::string head = fmt::format(
      "HTTP/1.1 200 OK\r\n{}Content-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
      "Connection: close\r\n\r\n",
      answer.headers, answer.body.size());
  mg_write(connection, head.data(), head.size());
  if (method == "GET") {
    mg_write(connection, answer.body.data(), answer.body.size());
  }
  return 200;
}

int SendHtml(mg_connection* connection, void* page) {
  return Send(connection, static_cast<const Page*>(page)->Html());
}

int SendData(mg_connection* connection, void* page) {
  const char* const given = mg_get_request_info(connection)->query_string;
  const std::string_view query = given == nullptr ? "" : given;
  std::array<char, kMaxRunBytes> run{};
  const int size =
      mg_get_var(query.data(), query.size(), "run", run.data(), run.size());
  const std::string_view name(run.data(),
                              size > 0 ? static_cast<size_t>(size) : 0);
  return Send(connection, static_cast<const Page*>(page)->Data(name));
}

// prometheus::Exposer hides its web server, which tells of itself only while
// it is made, by this thread.
thread_local Page* page_of_new_server = nullptr;

void AddPage(const mg_context* context) {
  if (page_of_new_server == nullptr) return;
  auto* const server = const_cast<mg_context*>(context);
  // "$": the path itself, and none below it.
  mg_set_request_handler(server, "/$", SendHtml, page_of_new_server);
  mg_set_request_handler(server, "/page.json$", SendData, page_of_new_server);
}

}  // namespace

std::unique_ptr<prometheus::Exposer> ServeMetrics(const std::string& address,
                                                  Page* page) {
  CivetCallbacks callbacks;
  callbacks.init_context = AddPage;
  page_of_new_server = page;
  auto exposer =
      std::make_unique<prometheus::Exposer>(Options(address), &callbacks);
  page_of_new_server = nullptr;
  return exposer;
}

}  // namespace counterweight::server
