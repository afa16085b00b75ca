// Options of a client: connection, deadlines, retries, transports.
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
  // Sends one message below Options::stream_from_bytes. Above, uses shared
  // memory if the target is a Unix socket and the server offers it; else a
  // stream.
  kAuto,
  // Correct: one message, at most Limits.max_message_bytes.
  kUnary,
  // CorrectStream: chunks, any size.
  kStream,
  // Correct with ranges of memory that client and server share, on one machine
  // over a Unix socket.
  kSharedMemory,
};

// "auto", "unary", "stream", "shared_memory".
std::string_view ToString(Transport transport);
// False if `name` is none of these.
bool ParseTransport(std::string_view name, Transport* transport);

// How to speak TLS: paths of files in PEM, which are read again when they
// change; connections that are open stay.
struct TlsFiles {
  // Authorities to trust; empty: the system's, as gRPC finds them.
  std::string root_certificates;
  // The client's, if the server wants one; both or none.
  std::string certificate;
  std::string key;
  // The name that the server's certificate has to have; empty: the target's
  // host.
  std::string server_name;
};

struct Options {
  Transport transport = Transport::kAuto;
  // Deadline of a whole call, with pauses and later attempts; > 0. One of years
  // is no limit.
  std::chrono::milliseconds timeout{60000};
  // Number of attempts including the first; >= 1. The client retries only what
  // the server did not admit: RESOURCE_EXHAUSTED with a delay, and UNAVAILABLE
  // before the stream's admission, or once a CANCELLED of a server that ends.
  // The pause is the server's delay or 0.1 s; it doubles up to 5 s, and up to a
  // quarter is added at random. A pause that would pass the deadline is not
  // begun.
  int max_attempts = 5;
  // Data bytes of a chunk, 1 to 2^30; the server refuses more than
  // Limits.max_chunk_bytes. 0: the server's preference (2 MiB).
  size_t chunk_bytes = 0;
  // kAuto: smallest number of input bytes that does not travel in one message.
  size_t stream_from_bytes = size_t{2} << 20;
  // Bytes of shared memory that the client keeps for inputs and outputs outside
  // of Client::Allocate's memory. It releases what a batch needs beyond that
  // after the batch, and everything when the server answers RESOURCE_EXHAUSTED.
  size_t shared_memory_pool_bytes = size_t{1} << 30;
  // Client::Submit: largest number of batches in flight; >= 1.
  int max_in_flight = 4;
  // Receives warnings, at most one of each kind per client: a server of another
  // major version; CUDA tensors that are copied to the host. May be called by
  // any thread. Null: a line on stderr.
  std::function<void(std::string_view)> on_warning;
  // While a call waits and has received nothing for `keepalive_interval`, the
  // client pings the server, and fails its calls with kUnavailable if no answer
  // arrives within `keepalive_timeout`: it notices a server that has frozen.
  // From 1 s to 24 h; servers end connections with several pings in a second.
  std::chrono::milliseconds keepalive_interval{20000};
  std::chrono::milliseconds keepalive_timeout{20000};
  // Absent: not encrypted, unless `credentials` do it.
  std::optional<TlsFiles> tls;
  // Sent with every call to a server that requires tokens: the token, or the
  // path of a file that is read before each call. Both empty: none. Without TLS
  // it is sent over Unix sockets and loopback only.
  std::string token;
  std::string token_file;
  // Also sends the token to other machines without TLS, where others may read
  // it.
  bool allow_insecure_token = false;
  // gRPC's credentials, instead of `tls`; null: none.
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  // Full name of the service. Another name serves for servers with the same
  // wire format, such as the echo of counterweight-bench.
  std::string service = "counterweight.v1.CorrectionService";
};

// Receives (bytes sent, bytes in all) of the inputs, in the thread of the call:
// first 0, at last all when the answer has arrived; from 0 again for another
// attempt. Streams call it after every chunk too. Must not throw; request a
// stop to end the call.
using Progress = std::function<void(size_t sent_bytes, size_t all_bytes)>;

// Overrides of the client's options for one call.
struct CallOptions {
  // Absent: the client's.
  std::optional<Transport> transport;
  // Absent: the client's.
  std::optional<std::chrono::milliseconds> timeout;
  // A stop request ends the call, or the pause before its next attempt, with
  // kCancelled.
  std::stop_token stop;
  // Null: no progress reports. Only Correct reports.
  Progress progress;
};

// kInvalidArgument that names every option out of its range.
Status Validate(const Options& options);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_OPTIONS_H_
