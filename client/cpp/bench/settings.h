// Settings of counterweight-bench.
#ifndef COUNTERWEIGHT_CLIENT_CPP_BENCH_SETTINGS_H_
#define COUNTERWEIGHT_CLIENT_CPP_BENCH_SETTINGS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/options.h"
#include "counterweight/v1/method.pb.h"
#include "counterweight/v1/tensor.pb.h"

namespace counterweight::bench {

struct Settings {
  // The server's address in gRPC's syntax; with serve_echo, the address to
  // listen on.
  std::string target;
  // Serve the echo instead of measuring.
  bool serve_echo = false;
  // The target serves the echo: measure the transport alone.
  bool echo = false;
  client::Transport transport = client::Transport::kAuto;
  // Bytes of a chunk; 0: the server's preference.
  size_t chunk_bytes = 0;
  // Absent: plaintext.
  std::optional<client::TlsFiles> tls;
  std::string token_file;  // empty: none
  // Inputs and outputs lie in memory of Client::Allocate.
  bool allocate = false;

  // The batch: rows, and the longest row's positions.
  int64_t sequences = 64;
  int64_t length = 512;
  // Rows of random lengths in succession; false: [sequences, length].
  bool packed = false;
  // Element type of log-probs and advantages.
  v1::DType dtype = v1::D_TYPE_F32;
  uint64_t seed = 0;
  // From --method, or --dialect and --block.
  v1::Method method;
  // Send current log-probs and advantages, and have loss and gradient computed.
  bool loss = false;
  // Have metrics computed and returned.
  bool metrics = true;
  // Only the named outputs.
  std::vector<v1::TensorRole> outputs;

  // Concurrent calls; with a rate, the largest number of them.
  int concurrency = 1;
  // Requests begun per second, independent of the answers. Absent: the next
  // call begins when one ends.
  std::optional<double> rate;
  // Seconds of measurement, and of warm-up before it.
  double duration_s = 5;
  double warmup_s = 1;
  // Seconds for one call.
  double timeout_s = 60;
  // Compare the first answer with a unary one.
  bool verify = false;
  // Print one JSON object instead of text.
  bool json = false;
};

// Parses the command line. Returns the exit code if there is nothing to run: 0
// after --help, 2 after a sentence on stderr that names the flag.
std::optional<int> ParseCommandLine(int argc, char** argv, Settings* settings);

}  // namespace counterweight::bench

#endif  // COUNTERWEIGHT_CLIENT_CPP_BENCH_SETTINGS_H_
