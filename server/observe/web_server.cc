#include "server/observe/web_server.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>
#include <utility>

namespace counterweight::server {
namespace {

// Accepts in a row before connections that are there are served, so that many
// at once do not push out one with a request.
constexpr int kAcceptsInARow = 16;

// An accept that fails for want of descriptors leaves its connection in the
// queue, where it would wake us at once.
constexpr timeval kAcceptPause{.tv_sec = 0, .tv_usec = 100'000};

constexpr size_t kMaxUnsentBytes = size_t{64} << 20;

// Between two answers the loop turns, so that the first one leaves.
constexpr timeval kNextTurn{.tv_sec = 0, .tv_usec = 0};
constexpr timeval kRoomPause{.tv_sec = 0, .tv_usec = 20'000};

}  // namespace

WebServer::WebServer(FileDescriptor listening, WebConnection::Answer answer,
                     TlsContext tls)
    : listening_(std::move(listening)),
      answer_(std::move(answer)),
      tls_(std::move(tls)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      base_(event_base_new()),
      stopping_(event_new(
          base_.get(), stop_.get(), EV_READ,
          [](evutil_socket_t, int16_t, void* self) {
            event_base_loopbreak(static_cast<WebServer*>(self)->base_.get());
          },
          this)),
      accepting_(event_new(
          base_.get(), listening_.get(), EV_READ | EV_PERSIST,
          [](evutil_socket_t, int16_t, void* self) {
            static_cast<WebServer*>(self)->Accept();
          },
          this)),
      pausing_(event_new(
          base_.get(), -1, 0,
          [](evutil_socket_t, int16_t, void* self) {
            event_add(static_cast<WebServer*>(self)->accepting_.get(), nullptr);
          },
          this)),
      answering_(event_new(
          base_.get(), -1, 0,
          [](evutil_socket_t, int16_t, void* self) {
            static_cast<WebServer*>(self)->AnswerOne();
          },
          this)) {
  if (!stop_.is_open() || base_ == nullptr || stopping_ == nullptr ||
      accepting_ == nullptr || pausing_ == nullptr || answering_ == nullptr ||
      event_add(stopping_.get(), nullptr) != 0 ||
      event_add(accepting_.get(), nullptr) != 0) {
    throw std::bad_alloc();
  }
  thread_ = std::thread([this] { Run(); });
}

WebServer::~WebServer() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
  event_del(accepting_.get());
  event_del(pausing_.get());
  event_del(answering_.get());
  connections_.clear();
  // The loop's next turn frees streams that were given up.
  event_base_loop(base_.get(), EVLOOP_NONBLOCK);
}

void WebServer::Run() {
  // OpenSSL and libevent write to sockets that the client may have closed.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  event_base_dispatch(base_.get());
}

void WebServer::Accept() {
  for (int i = 0; i < kAcceptsInARow; ++i) {
    FileDescriptor socket(accept4(listening_.get(), nullptr, nullptr,
                                  SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.is_open()) {
      Add(std::move(socket));
      continue;
    }
    // The client has gone already.
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    EndOne();
    event_del(accepting_.get());
    event_add(pausing_.get(), &kAcceptPause);
    return;
  }
}

void WebServer::Add(FileDescriptor socket) {
  if (connections_.size() >= kMaxWebConnections) EndOne();
  const std::shared_ptr<SSL_CTX> tls = tls_ ? tls_() : nullptr;
  const auto place = connections_.emplace(connections_.end());
  try {
    *place = std::make_unique<WebConnection>(
        base_.get(), std::move(socket), tls.get(),
        WebConnection::Callbacks{
            .on_request =
                [this] {
                  if (event_pending(answering_.get(), EV_TIMEOUT, nullptr) == 0)
                    event_add(answering_.get(), &kNextTurn);
                },
            .on_end = [this, place] { connections_.erase(place); }});
  } catch (const std::bad_alloc&) {
    connections_.erase(place);
  }
}

void WebServer::EndOne() {
  const auto slow =
      std::find_if(connections_.begin(), connections_.end(),
                   [](const auto& each) { return each->is_slow(); });
  if (slow != connections_.end()) {
    connections_.erase(slow);
  } else if (!connections_.empty()) {
    connections_.pop_front();
  }
}

void WebServer::AnswerOne() {
  const auto is_waiting = [](const auto& each) { return each->is_waiting(); };
  const auto first =
      std::find_if(connections_.begin(), connections_.end(), is_waiting);
  if (first == connections_.end()) return;
  const bool has_room = MakeRoom();
  const bool others_wait =
      std::any_of(std::next(first), connections_.end(), is_waiting);
  if (has_room) (*first)->Give(answer_);
  if (has_room && !others_wait) return;
  event_add(answering_.get(), has_room ? &kNextTurn : &kRoomPause);
}

bool WebServer::MakeRoom() {
  size_t unsent = 0;
  for (const auto& each : connections_) unsent += each->unsent_bytes();
  for (auto each = connections_.begin();
       each != connections_.end() && unsent > kMaxUnsentBytes;) {
    if ((*each)->is_slow()) {
      unsent -= (*each)->unsent_bytes();
      each = connections_.erase(each);
    } else {
      ++each;
    }
  }
  return unsent <= kMaxUnsentBytes;
}

}  // namespace counterweight::server
