#include "server/observe/metrics_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "CivetServer.h"
#include "openssl/evp.h"
#include "server/listen/listen_address.h"
#include "server/shared_memory/file_descriptor.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

// A connection has a thread until it is answered. One more accepts.
constexpr int kConnections = kMetricsServerThreads - 1;

// For the whole request to arrive, and for each part of the answer to leave. A
// scraper sends its request in one piece: only a connection that is stuck needs
// longer, and scrapes wait for its thread.
constexpr int kTimeoutMilliseconds = 2000;

constexpr std::chrono::milliseconds kKnockPeriod{5};

// Names of runs are at most 64 bytes; a longer one is no run's.
constexpr size_t kMaxRunBytes = 256;

// Kubernetes' probes have no token, and learn one bit.
constexpr std::string_view kOpenPaths[] = {"/livez", "/readyz"};

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

int Send(mg_connection* connection, const WebAnswer& answer, int code = 200) {
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
      "HTTP/1.1 {}\r\n{}Content-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
      "Connection: close\r\n\r\n",
      code == 200 ? "200 OK" : "503 Service Unavailable", answer.headers,
      answer.body.size());
  mg_write(connection, head.data(), head.size());
  if (method == "GET") {
    mg_write(connection, answer.body.data(), answer.body.size());
  }
  return code;
}

int SendHealth(mg_connection* connection, Health health, bool is_well) {
  return Send(connection,
              {.headers = "Content-Type: text/plain\r\n",
               .body = fmt::format("{}\n", Word(health))},
              is_well ? 200 : 503);
}

// A server that drains is alive, or it would be killed at its work.
int SendAlive(mg_connection* connection, void* health) {
  const Health now = static_cast<const std::atomic<Health>*>(health)->load();
  return SendHealth(connection, now, now != Health::kFailed);
}

int SendReady(mg_connection* connection, void* health) {
  const Health now = static_cast<const std::atomic<Health>*>(health)->load();
  return SendHealth(connection, now, now == Health::kReady);
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

// The token in "Basic BASE64", of NAME:TOKEN, as "Bearer TOKEN"; other values
// as they are.
std::string AsBearer(std::string_view authorization) {
  constexpr std::string_view kBasic = "Basic ";
  if (!authorization.starts_with(kBasic)) return std::string(authorization);
  authorization.remove_prefix(kBasic.size());
  std::string text(authorization.size(), '\0');
  const int size = EVP_DecodeBlock(
      reinterpret_cast<unsigned char*>(text.data()),
      reinterpret_cast<const unsigned char*>(authorization.data()),
      static_cast<int>(authorization.size()));
  if (size < 0) return "";
  // It counts what stands for '=', as zeros.
  text.resize(static_cast<size_t>(size));
  text.resize(text.find_last_not_of('\0') + 1);
  return "Bearer " + text.substr(text.find(':') + 1);
}

// The web server's check of each request: 1, or 0 when it has been refused.
int MayAsk(mg_connection* connection, void* access) {
  const mg_request_info* const request = mg_get_request_info(connection);
  const std::string_view path =
      request->local_uri == nullptr ? "" : request->local_uri;
  if (std::find(std::begin(kOpenPaths), std::end(kOpenPaths), path) !=
      std::end(kOpenPaths)) {
    return 1;
  }
  const char* const given = mg_get_header(connection, "Authorization");
  const std::string authorization = AsBearer(given == nullptr ? "" : given);
  Access::Credentials credentials;
  credentials.authorization = authorization;
  const grpc::Status status =
      static_cast<Access*>(access)->Check(path, credentials);
  if (status.ok()) return 1;
  const std::string answer = fmt::format(
      "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\n"
      "WWW-Authenticate: Basic realm=\"a token is the password\"\r\n"
      "Content-Type: text/plain\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}\n",
      status.error_message().size() + 1, status.error_message());
  mg_write(connection, answer.data(), answer.size());
  return 0;
}

// prometheus::Exposer hides its web server, which tells of itself only while
// it is made, by this thread.
thread_local Page* page_of_new_server = nullptr;
thread_local const std::atomic<Health>* health_of_new_server = nullptr;
thread_local Access* access_of_new_server = nullptr;

void AddHandlers(const mg_context* context) {
  auto* const server = const_cast<mg_context*>(context);
  auto* const health = const_cast<std::atomic<Health>*>(health_of_new_server);
  mg_set_auth_handler(server, "/**", MayAsk, access_of_new_server);
  // "$": the path itself, and none below it.
  mg_set_request_handler(server, "/livez$", SendAlive, health);
  mg_set_request_handler(server, "/readyz$", SendReady, health);
  if (page_of_new_server == nullptr) return;
  mg_set_request_handler(server, "/$", SendHtml, page_of_new_server);
  mg_set_request_handler(server, "/page.json$", SendData, page_of_new_server);
}

// Connects and leaves; waits for neither. Without success it is tried again.
void Knock(const ListenAddress& to) {
  const bool is_ipv6 = to.host.find(':') != to.host.npos;
  sockaddr_in6 ipv6{};
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_port = htons(to.port);
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  ipv4.sin_port = htons(to.port);
  const FileDescriptor connection(
      socket(is_ipv6 ? AF_INET6 : AF_INET,
             SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (is_ipv6 && inet_pton(AF_INET6, to.host.c_str(), &ipv6.sin6_addr) == 1) {
    static_cast<void>(connect(
        connection.get(), reinterpret_cast<sockaddr*>(&ipv6), sizeof(ipv6)));
  } else if (inet_pton(AF_INET, to.host.c_str(), &ipv4.sin_addr) == 1) {
    static_cast<void>(connect(
        connection.get(), reinterpret_cast<sockaddr*>(&ipv4), sizeof(ipv4)));
  }
}

}  // namespace

std::unique_ptr<prometheus::Exposer> ServeMetrics(
    const std::string& address, Page* page, const std::atomic<Health>* health,
    Access* access) {
  CivetCallbacks callbacks;
  callbacks.init_context = AddHandlers;
  page_of_new_server = page;
  health_of_new_server = health;
  access_of_new_server = access;
  auto exposer =
      std::make_unique<prometheus::Exposer>(Options(address), &callbacks);
  page_of_new_server = nullptr;
  return exposer;
}

bool CanServeMetricsOverIpv6() {
  return mg_check_feature(MG_FEATURES_IPV6) != 0;
}

void StopMetrics(std::unique_ptr<prometheus::Exposer> exposer,
                 const std::string& address) {
  // The thread that accepts looks every two seconds whether it is to end, and
  // after each connection.
  const absl::StatusOr<ListenAddress> listening = ParseListenAddress(address);
  if (exposer == nullptr || !listening.ok()) return;
  std::atomic<bool> has_stopped = false;
  std::thread knocking;
  try {
    knocking = std::thread([&] {
      while (!has_stopped) {
        Knock(*listening);
        std::this_thread::sleep_for(kKnockPeriod);
      }
    });
  } catch (const std::system_error&) {
    // Where no thread is left it takes longer.
  }
  exposer.reset();
  has_stopped = true;
  if (knocking.joinable()) knocking.join();
}

}  // namespace counterweight::server
