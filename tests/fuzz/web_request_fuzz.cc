// Requests of the metrics port.
//
// Input: the head of a request, without the empty line that ends it.
//
// Checks: fields lie within the head; a foreign host needs permission.
#include <cstdint>
#include <string>
#include <string_view>

#include "server/observe/web_request.h"
#include "tests/fuzz/input.h"

namespace counterweight::fuzz {
namespace {

bool LiesWithin(std::string_view part, std::string_view whole) {
  return part.empty() ||
         (part.data() >= whole.data() &&
          part.data() + part.size() <= whole.data() + whole.size());
}

void CheckHead(std::string head) {
  head += "\r\n\r\n";
  const auto request = server::ParseWebRequest(head);
  // The same for a value that arrived as one.
  static_cast<void>(server::BearerOf(head));
  if (!request) return;
  Expect(!request->method.empty(), "a request has a method");
  Expect(request->path.starts_with('/') &&
             request->path.find('?') == std::string_view::npos,
         "a path begins with / and has no query", std::string(request->path));
  for (const std::string_view part :
       {request->method, request->path, request->query, request->authorization,
        request->accept_encoding}) {
    // The path of "http://host" is the literal "/".
    const bool is_literal = part == "/" &&
                            part.data() == request->path.data() &&
                            head.find("://") != std::string::npos;
    Expect(LiesWithin(part, head) || is_literal,
           "what is read is part of the head");
    Expect(part.find_first_of(std::string_view("\r\n\0", 3)) ==
               std::string_view::npos,
           "no field has another line");
  }
  Expect(
      server::QueryValue(request->query, "run").size() <= request->query.size(),
      "decoding makes nothing longer");
  const std::string host(request->host);
  Expect(LiesWithin(request->host, head), "the host is part of the head");
  Expect(!server::IsOwnHost(host + ".example", {}),
         "a name with a dot needs permission", host);
  if (!server::IsOwnHost(host, {})) {
    Expect(
        server::IsOwnHost(host, {host}) || host.find(':') != std::string::npos,
        "a name that is permitted is ours", host);
  }
}

}  // namespace
}  // namespace counterweight::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  counterweight::fuzz::CheckHead({data, data + size});
  return 0;
}
