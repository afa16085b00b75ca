// How a client connects, waits and carries batches.
#ifndef COUNTERWEIGHT_CLIENT_CPP_OPTIONS_H_
#define COUNTERWEIGHT_CLIENT_CPP_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "client/cpp/status.h"

namespace grpc {
class ChannelCredentials;
}

namespace counterweight::client {

// How the bytes of a batch travel. The answer's bytes do not depend on it.
enum class Transport {
  // Below Options::stream_from_bytes one message; above, shared memory where
  // the target is a Unix socket, the server offers it and the request names its
  // outputs, else a stream.
  kAuto,
  // Correct: one message, at most Limits.max_message_bytes.
  kUnary,
  // CorrectStream: chunks, any size.
  kStream,
  // Correct with ranges of memory that client and server share. Only on one
  // machine, over a Unix socket.
  kSharedMemory,
};

// "auto", "unary", "stream", "shared_memory".
std::string_view ToString(Transport transport);
// False if `name` is none of these.
bool ParseTransport(std::string_view name, Transport* transport);

struct Options {
  Transport transport = Transport::kAuto;
  // For a whole call, pauses and later attempts included; > 0.
  std::chrono::milliseconds timeout{60000};
  // Attempts in all, the first included; >= 1. Only what the server did not
  // admit is tried again: RESOURCE_EXHAUSTED with a delay, and UNAVAILABLE
  // before the server's admission. The pause is what the server asks for, or
  // 0.1 s; it doubles up to 5 s, and has up to a quarter of itself on top. One
  // that would not end in time is not begun.
  int max_attempts = 5;
  // Bytes of a chunk's data, 1 to 2^30; above Limits.max_chunk_bytes the server
  // refuses. 0: what the server prefers (2 MiB).
  size_t chunk_bytes = 0;
  // kAuto: input bytes from which a batch does not travel in one message.
  size_t stream_from_bytes = size_t{2} << 20;
  // Bytes of shared memory that are kept for inputs and outputs that do not lie
  // in it themselves (see Client::Allocate); what a batch needs beyond is
  // released after it, and all of it when the server answers
  // RESOURCE_EXHAUSTED.
  size_t shared_memory_pool_bytes = size_t{1} << 30;
  // Null: neither encrypted nor authenticated.
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  // Full name of the service. Another one is for servers that speak the same
  // wire format, as the echo of counterweight-bench does.
  std::string service = "counterweight.v1.CorrectionService";
};

// Told (bytes sent, bytes in all) of the inputs, in the thread of the call: 0
// before the first, all when the answer is there; again from 0 if the batch is
// sent again. Streams tell it after every chunk too. Must not throw; to end the
// call, request a stop.
using Progress = std::function<void(size_t sent_bytes, size_t all_bytes)>;

// What one call does differently.
struct CallOptions {
  // Absent: the client's.
  std::optional<Transport> transport;
  // Absent: the client's.
  std::optional<std::chrono::milliseconds> timeout;
  // A stop request ends the call, or the pause before its next attempt, with
  // kCancelled.
  std::stop_token stop;
  // Null: nobody asks. Correct alone tells it.
  Progress progress;
};

// kInvalidArgument naming every option out of its range.
Status Validate(const Options& options);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_OPTIONS_H_
