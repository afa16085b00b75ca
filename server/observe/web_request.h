// The head of an HTTP/1.1 request.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_WEB_REQUEST_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_WEB_REQUEST_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/access/tls_context.h"

namespace counterweight::server {

// A longer head is refused.
inline constexpr size_t kMaxHeadBytes = 16384;

// A question of a scraper or a browser; other fields are ignored, and a body is
// not read.
struct WebRequest {
  std::string_view method;
  std::string_view path;   // as sent: "/metrics"
  std::string_view query;  // what follows '?', as sent
  std::string_view authorization;
  std::string_view accept_encoding;
  // The host that the client addresses, with its port; empty: not known.
  std::string_view host;
  // Its transport, and the arrival of its last byte.
  std::chrono::steady_clock::time_point arrived;
  bool is_tls = false;
  PeerCertificate peer;
};

// Whether `host` ("name:9464") is one of a server's own, which a page of
// another site cannot have in a browser (DNS rebinding): an IP address, a name
// without dots such as localhost, or one of `names`. Names have no case.
bool IsOwnHost(std::string_view host, const std::vector<std::string>& names);

// Reads a head with the empty line that ends it (RFC 9112). Nothing if it is
// none. Views refer to `head`, but the path of "http://host" is a literal.
std::optional<WebRequest> ParseWebRequest(std::string_view head);

// "Bearer TOKEN" of "Basic BASE64", which is NAME:TOKEN, as browsers send a
// password; empty if that is no base64. Other values as they are.
std::string BearerOf(std::string_view authorization);

// Whether one of the codings is gzip, with a weight above 0.
bool TakesGzip(std::string_view accept_encoding);

// The decoded value of the first `name` in a query (%41 and '+'); empty if
// there is none.
std::string QueryValue(std::string_view query, std::string_view name);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_WEB_REQUEST_H_
