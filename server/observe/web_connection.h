// One connection of the metrics port.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_WEB_CONNECTION_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_WEB_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "event2/buffer.h"
#include "event2/bufferevent.h"
#include "event2/event.h"
#include "openssl/ssl.h"
#include "server/observe/web_request.h"
#include "server/shared_memory/file_descriptor.h"

namespace counterweight::server {

// libevent's objects.
struct FreeEvent {
  void operator()(event_base* base) const { event_base_free(base); }
  void operator()(event* each) const { event_free(each); }
  void operator()(bufferevent* stream) const { bufferevent_free(stream); }
};
template <typename T>
using EventOwner = std::unique_ptr<T, FreeEvent>;

// Reads the head of one request, writes the answer, and ends. Each of these has
// a time as a whole, which bytes that trickle do not renew. For the thread of
// its event loop alone.
class WebConnection {
 public:
  // Returns the whole answer, status line included.
  using Answer = std::function<std::string(const WebRequest& request)>;

  // Takes `socket`. With `tls` the client has to begin with a handshake.
  // `on_end` is called once, if the connection ends by itself, and destroys it.
  // Throws std::bad_alloc. *answer outlives this.
  WebConnection(event_base* base, FileDescriptor socket, SSL_CTX* tls,
                const Answer* answer, std::function<void()> on_end);
  WebConnection(const WebConnection&) = delete;
  WebConnection& operator=(const WebConnection&) = delete;

  // Bytes of the answer that wait for the client.
  size_t unsent_bytes() const;

 private:
  enum class State : uint8_t { kReading, kAnswering, kClosing };

  void OnRead();
  std::string AnswerTo(std::string_view head) const;
  void OnWritten();
  void OnEvent(int16_t what);
  void Send(std::string answer);
  void AllowSeconds(int seconds);
  void End();

  const Answer& answer_;
  std::function<void()> on_end_;
  State state_ = State::kReading;
  bool client_has_ended_ = false;
  EventOwner<bufferevent> stream_;
  EventOwner<event> timer_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_WEB_CONNECTION_H_
