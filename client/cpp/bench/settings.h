// What counterweight-bench is asked to do.
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
  // Where the server is, as gRPC names it; with serve_echo, where to listen.
  std::string target;
  // Serve the echo instead of measuring.
  bool serve_echo = false;
  // The target serves the echo: measure the transport alone.
  bool echo = false;
  client::Transport transport = client::Transport::kAuto;
  // Bytes of a chunk; 0: the server's preference.
  size_t chunk_bytes = 0;
  // Inputs and outputs lie in memory of Client::Allocate.
  bool allocate = false;

  // The batch: rows, and the longest row's positions.
  int64_t sequences = 64;
  int64_t length = 512;
  // Rows of random lengths, one after the other; false: [sequences, length].
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
  // Named ones only.
  std::vector<v1::TensorRole> outputs;

  // Calls at a time; with a rate, the most.
  int concurrency = 1;
  // Requests begun per second, whatever the answers take. Absent: the next call
  // begins when one ends.
  std::optional<double> rate;
  // Seconds measured, and seconds before that.
  double duration_s = 5;
  double warmup_s = 1;
  // Seconds for one call.
  double timeout_s = 60;
  // Compare the first answer with a unary one.
  bool verify = false;
  // Print one JSON object instead of text.
  bool json = false;
};

// The command line as settings. Returns the exit code if there is nothing to
// run: 0 after --help, 2 after a sentence on stderr that names the flag.
std::optional<int> ParseCommandLine(int argc, char** argv, Settings* settings);

}  // namespace counterweight::bench

#endif  // COUNTERWEIGHT_CLIENT_CPP_BENCH_SETTINGS_H_
