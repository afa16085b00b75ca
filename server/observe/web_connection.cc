#include "server/observe/web_connection.h"

#include <sys/socket.h>

#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "event2/bufferevent_ssl.h"
#include "openssl/err.h"

namespace counterweight::server {
namespace {

// For the handshake and the request. A scraper sends its request in one piece:
// only a connection that is stuck needs longer.
constexpr int kRequestSeconds = 2;

// For a request to wait, and for the answer to leave: as long as Prometheus
// waits by default.
constexpr int kAnswerSeconds = 10;

// A client that reads gets more than that. What a socket's buffers take at
// once, some MiB, counts as read.
constexpr double kSlowSeconds = 0.5;
constexpr double kSlowBytesPerSecond = 8 << 20;

// For the client to close first, so that bytes of its that we have not read do
// not make the system throw the answer away.
constexpr int kClosingSeconds = 1;

constexpr std::string_view kHeadEnd = "\r\n\r\n";

constexpr std::string_view kNoRequest =
    "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n"
    "Connection: close\r\n\r\n";
constexpr std::string_view kTooLong =
    "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\n"
    "Connection: close\r\n\r\n";

// Null for want of memory.
bufferevent* MakeStream(event_base* base, FileDescriptor* socket,
                        SSL_CTX* tls) {
  // Deferred, so that a callback may free the stream.
  constexpr int kOptions = BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS;
  bufferevent* stream = nullptr;
  if (tls == nullptr) {
    stream = bufferevent_socket_new(base, socket->get(), kOptions);
  } else if (SSL* const ssl = SSL_new(tls)) {
    stream = bufferevent_openssl_socket_new(
        base, socket->get(), ssl, BUFFEREVENT_SSL_ACCEPTING, kOptions);
    if (stream == nullptr) SSL_free(ssl);
  }
  // The stream closes it.
  if (stream != nullptr) static_cast<void>(socket->Release());
  return stream;
}

void FreeText(const void* /*data*/, size_t /*size*/, void* text) {
  delete static_cast<std::string*>(text);
}

}  // namespace

WebConnection::WebConnection(event_base* base, FileDescriptor socket,
                             SSL_CTX* tls, Callbacks callbacks)
    : callbacks_(std::move(callbacks)),
      stream_(MakeStream(base, &socket, tls)),
      timer_(event_new(
          base, -1, 0,
          [](evutil_socket_t, int16_t, void* self) {
            static_cast<WebConnection*>(self)->End();
          },
          this)) {
  if (stream_ == nullptr || timer_ == nullptr) throw std::bad_alloc();
  bufferevent_setcb(
      stream_.get(),
      [](bufferevent*, void* self) {
        static_cast<WebConnection*>(self)->OnRead();
      },
      [](bufferevent*, void* self) {
        static_cast<WebConnection*>(self)->OnWritten();
      },
      [](bufferevent*, int16_t what, void* self) {
        static_cast<WebConnection*>(self)->OnEvent(what);
      },
      this);
  // No more than that is read before the callback has looked.
  bufferevent_setwatermark(stream_.get(), EV_READ, 0, kMaxHeadBytes);
  bufferevent_enable(stream_.get(), EV_READ | EV_WRITE);
  AllowSeconds(kRequestSeconds);
}

size_t WebConnection::unsent_bytes() const {
  return evbuffer_get_length(bufferevent_get_output(stream_.get()));
}

bool WebConnection::is_slow() const {
  if (unsent_bytes() == 0) return false;
  const std::chrono::duration<double> age = Clock::now() - answered_;
  const size_t sent = answer_bytes_ - unsent_bytes();
  return age.count() >
         kSlowSeconds + static_cast<double>(sent) / kSlowBytesPerSecond;
}

void WebConnection::OnRead() {
  if (state_ == State::kWaiting) return;  // the head stays where it is
  evbuffer* const input = bufferevent_get_input(stream_.get());
  const size_t size = evbuffer_get_length(input);
  if (state_ != State::kReading) {
    evbuffer_drain(input, size);
    return;
  }
  const evbuffer_ptr end =
      evbuffer_search(input, kHeadEnd.data(), kHeadEnd.size(), nullptr);
  if (end.pos < 0) {
    if (size >= kMaxHeadBytes) Send(std::string(kTooLong));
    return;
  }
  head_bytes_ = static_cast<size_t>(end.pos) + kHeadEnd.size();
  arrived_ = Clock::now();
  state_ = State::kWaiting;
  AllowSeconds(kAnswerSeconds);
  callbacks_.on_request();
}

void WebConnection::Give(const Answer& answer) {
  const auto* const head = reinterpret_cast<const char*>(
      evbuffer_pullup(bufferevent_get_input(stream_.get()),
                      static_cast<ev_ssize_t>(head_bytes_)));
  try {
    if (head == nullptr) throw std::bad_alloc();
    Send(AnswerTo(std::string_view(head, head_bytes_), answer));
  } catch (const std::bad_alloc&) {
    // It may not pass through libevent.
    End();
  }
}

std::string WebConnection::AnswerTo(std::string_view head,
                                    const Answer& answer) const {
  std::optional<WebRequest> request = ParseWebRequest(head);
  if (!request) return std::string(kNoRequest);
  request->arrived = arrived_;
  if (const SSL* const ssl = bufferevent_openssl_get_ssl(stream_.get())) {
    request->is_tls = true;
    request->peer = PeerCertificateOf(ssl);
  }
  return answer(*request);
}

void WebConnection::Send(std::string answer) {
  state_ = State::kAnswering;
  evbuffer* const input = bufferevent_get_input(stream_.get());
  evbuffer_drain(input, evbuffer_get_length(input));
  AllowSeconds(kAnswerSeconds);
  answer_bytes_ = answer.size();
  answered_ = Clock::now();
  auto* const text = new std::string(std::move(answer));
  if (evbuffer_add_reference(bufferevent_get_output(stream_.get()),
                             text->data(), text->size(), FreeText, text) != 0) {
    delete text;
    End();
  }
}

void WebConnection::OnWritten() {
  if (state_ != State::kAnswering || unsent_bytes() > 0) return;
  if (client_has_ended_) {
    End();
    return;
  }
  state_ = State::kClosing;
  if (SSL* const ssl = bufferevent_openssl_get_ssl(stream_.get())) {
    SSL_shutdown(ssl);
    ERR_clear_error();
  }
  shutdown(bufferevent_getfd(stream_.get()), SHUT_WR);
  AllowSeconds(kClosingSeconds);
}

void WebConnection::OnEvent(int16_t what) {
  if ((what & BEV_EVENT_CONNECTED) != 0) return;  // the handshake
  // A client may end its side as soon as it has sent its request. libevent
  // writes nothing
  // more to one that ends TLS.
  if ((what & BEV_EVENT_EOF) != 0 &&
      (state_ == State::kWaiting || state_ == State::kAnswering) &&
      bufferevent_openssl_get_ssl(stream_.get()) == nullptr) {
    client_has_ended_ = true;
    return;
  }
  End();
}

void WebConnection::AllowSeconds(int seconds) {
  const timeval time{.tv_sec = seconds, .tv_usec = 0};
  event_add(timer_.get(), &time);
}

void WebConnection::End() {
  // The call destroys this, and with it the function.
  const std::function<void()> on_end = std::move(callbacks_.on_end);
  on_end();
}

}  // namespace counterweight::server
