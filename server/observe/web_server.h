// The web server of the metrics port, for a few scrapers and browsers.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_WEB_SERVER_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_WEB_SERVER_H_

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <thread>

#include "openssl/ssl.h"
#include "server/base/file_descriptor.h"
#include "server/observe/web_connection.h"

namespace counterweight::server {

// At the limit the oldest slow reader is closed, else the oldest connection: an
// honest one is new, and soon over.
inline constexpr size_t kMaxWebConnections = 256;

// Answers one request per connection, on one thread. Connections, their time
// and their bytes are bounded: kMaxWebConnections, WebConnection, and 64 MiB of
// answers that wait for their clients. Requests then wait too: clients that
// read make room, and those that do not are ended, the oldest first.
class WebServer {
 public:
  // Each new connection takes the context of the moment.
  using TlsContext = std::function<std::shared_ptr<SSL_CTX>()>;

  // Serves from now on until it is destroyed, which waits for no client.
  // `answer` is called on its thread. An empty `tls` means plaintext. Throws if
  // the system has no memory, descriptor or thread for it.
  WebServer(FileDescriptor listening, WebConnection::Answer answer,
            TlsContext tls);
  ~WebServer();
  WebServer(const WebServer&) = delete;
  WebServer& operator=(const WebServer&) = delete;

 private:
  using Connections = std::list<std::unique_ptr<WebConnection>>;

  void Run();
  void Accept();
  void Add(FileDescriptor socket);
  void EndOne();
  // Answers the oldest request that waits, if there is room.
  void AnswerOne();
  // Whether the bound allows one more answer; ends slow clients if it must.
  bool MakeRoom();

  const FileDescriptor listening_;
  const WebConnection::Answer answer_;
  const TlsContext tls_;
  const FileDescriptor stop_;  // an eventfd, readable when it is time to end
  const EventOwner<event_base> base_;
  const EventOwner<event> stopping_;
  const EventOwner<event> accepting_;
  const EventOwner<event> pausing_;
  const EventOwner<event> answering_;
  Connections connections_;  // oldest first
  std::thread thread_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_WEB_SERVER_H_
