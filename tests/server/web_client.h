// A client of the metrics port.
#ifndef COUNTERWEIGHT_TESTS_SERVER_WEB_CLIENT_H_
#define COUNTERWEIGHT_TESTS_SERVER_WEB_CLIENT_H_

#include <arpa/inet.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <string_view>

#include "server/base/file_descriptor.h"

namespace counterweight::server {

// A connection that has sent a request.
inline FileDescriptor Ask(uint16_t port, const std::string& fields = "",
                          const std::string& path = "/metrics",
                          const std::string& method = "GET") {
  FileDescriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // Only a hang reaches it.
  timeval limit{.tv_sec = 60, .tv_usec = 0};
  setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  connect(client.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to));
  const std::string question =
      method + " " + path + " HTTP/1.1\r\n" + fields + "\r\n";
  send(client.get(), question.data(), question.size(), MSG_NOSIGNAL);
  return client;
}

// "200"; empty if there is no answer.
inline std::string CodeOf(const FileDescriptor& client) {
  std::array<char, 12> begin{};
  if (recv(client.get(), begin.data(), begin.size(), MSG_WAITALL) !=
      static_cast<ssize_t>(begin.size())) {
    return "";
  }
  const std::string_view line(begin.data(), begin.size());
  return line.starts_with("HTTP/1.1 ") ? std::string(line.substr(9)) : "";
}

// All of it, to the end of the connection.
inline std::string AnswerOf(const FileDescriptor& client) {
  std::string answer;
  std::array<char, 4096> part{};
  for (ssize_t size = 1; size > 0;) {
    size = recv(client.get(), part.data(), part.size(), 0);
    if (size > 0) answer.append(part.data(), static_cast<size_t>(size));
  }
  return answer;
}

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_WEB_CLIENT_H_
