// Golden vectors: one request and the answer of another system's own code.
// tests/golden/README.md defines the format and its conventions.
#ifndef COUNTERWEIGHT_TESTS_SERVER_DIALECTS_GOLDEN_H_
#define COUNTERWEIGHT_TESTS_SERVER_DIALECTS_GOLDEN_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

// One tensor of a file, [num_sequences, length], row-major.
template <typename T>
using GoldenTensor = std::optional<std::vector<T>>;

struct Golden {
  std::string name;     // "is_only_00"
  std::string dialect;  // "verl"
  std::string release;  // "0.9.1"
  std::string source;   // "alibaba/ROLL@8eb27cc2"
  google::protobuf::Struct block;

  int64_t num_sequences = 0;
  int64_t length = 0;
  GoldenTensor<float> rollout_log_probs;
  GoldenTensor<float> old_log_probs;
  GoldenTensor<float> current_log_probs;
  GoldenTensor<float> ref_log_probs;
  GoldenTensor<float> advantages;
  std::vector<uint8_t> response_mask;

  // The original's answer, or the message of its error, or the reason why the
  // server refuses its answer.
  GoldenTensor<double> weights;
  GoldenTensor<uint8_t> mask;
  std::optional<double> loss;
  GoldenTensor<double> gradient;
  MetricMap metrics;
  std::optional<std::string> error;
  bool is_refused = false;  // the error is the server's reason
  // For an error: its fields and inputs; a violation must name one of them:
  // "rollout_rs_threshold", "old_log_probs".
  std::vector<std::string> blamed;
};

// The requested parts of the server's answer.
struct GoldenAnswer {
  GoldenTensor<double> weights;
  std::vector<uint8_t> keep_mask;
  std::optional<double> loss;
  GoldenTensor<double> gradient;
  MetricMap metrics;
};

// GoogleTest prints parameters with this.
std::ostream& operator<<(std::ostream& out, const Golden& golden);

// Reads every file of tests/golden/<folder>, by name. Aborts the test program
// if a file is not a golden.
std::vector<Golden> ReadGoldens(const std::string& folder);

// The same; under sanitizers, which do not check numbers, one file of each
// eight.
std::vector<Golden> SampleGoldens(const std::string& dialect);

// True if the request has loss and gradient: the file has a loss, or the
// original failed while computing one.
bool AsksForLoss(const Golden& golden);

// The request's facts for the dialect.
RequestFacts FactsOf(const Golden& golden);

// Returns a sentence for every difference beyond the goldens' tolerances, and
// for every metric that the answer lacks.
std::vector<std::string> Differences(const Golden& golden,
                                     const GoldenAnswer& answer);

// True if the path of one of `violations` names a field of the golden's error.
bool Blames(const Violations& violations, const Golden& golden);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_DIALECTS_GOLDEN_H_
