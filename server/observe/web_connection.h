// One connection of the metrics port.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_WEB_CONNECTION_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_WEB_CONNECTION_H_

#include <chrono>
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
#include "server/base/file_descriptor.h"
#include "server/observe/web_request.h"

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

  struct Callbacks {
    std::function<void()> on_request;  // it has arrived: now is_waiting()
    // Called once, if the connection ends by itself, and destroys it.
    std::function<void()> on_end;
  };

  // Takes `socket`. With `tls` the client has to begin with a handshake.
  // Throws std::bad_alloc.
  WebConnection(event_base* base, FileDescriptor socket, SSL_CTX* tls,
                Callbacks callbacks);
  WebConnection(const WebConnection&) = delete;
  WebConnection& operator=(const WebConnection&) = delete;

  // Its request is whole, and nothing answers it yet.
  bool is_waiting() const { return state_ == State::kWaiting; }

  // Answers the request that waits. May end the connection.
  void Give(const Answer& answer);

  // Bytes of the answer that wait for the client.
  size_t unsent_bytes() const;

  // Whether the client reads the answer more slowly than one that is served
  // while others wait for room.
  bool is_slow() const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class State : uint8_t { kReading, kWaiting, kAnswering, kClosing };

  void OnRead();
  std::string AnswerTo(std::string_view head, const Answer& answer) const;
  void OnWritten();
  void OnEvent(int16_t what);
  void Send(std::string answer);
  void AllowSeconds(int seconds);
  void End();

  Callbacks callbacks_;
  State state_ = State::kReading;
  size_t head_bytes_ = 0;  // once it waits
  Clock::time_point arrived_;
  size_t answer_bytes_ = 0;
  Clock::time_point answered_;
  bool client_has_ended_ = false;
  EventOwner<bufferevent> stream_;
  EventOwner<event> timer_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_WEB_CONNECTION_H_
