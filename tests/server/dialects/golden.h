// Golden vectors: one request and the answer that another system's own code
// gave. tests/golden/README.md tells the format and its conventions.
#ifndef COUNTERWEIGHT_TESTS_SERVER_DIALECTS_GOLDEN_H_
#define COUNTERWEIGHT_TESTS_SERVER_DIALECTS_GOLDEN_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialects/dialect.h"

namespace counterweight::server {

// [num_sequences, length], row-major; what a file says of one tensor.
template <typename T>
using GoldenTensor = std::optional<std::vector<T>>;

struct Golden {
  std::string name;     // "is_only_00"
  std::string dialect;  // "verl"
  std::string release;  // "0.9.1"
  google::protobuf::Struct block;

  int64_t num_sequences = 0;
  int64_t length = 0;
  GoldenTensor<float> rollout_log_probs;
  GoldenTensor<float> old_log_probs;
  GoldenTensor<float> current_log_probs;
  GoldenTensor<float> ref_log_probs;
  GoldenTensor<float> advantages;
  std::vector<uint8_t> response_mask;

  // What the original answered, or the message of the error that it raised, or
  // why we refuse what it answers.
  GoldenTensor<double> weights;
  GoldenTensor<uint8_t> mask;
  std::optional<double> loss;
  GoldenTensor<double> gradient;
  MetricMap metrics;
  std::optional<std::string> error;
  // Where there is an error: the fields and inputs that it is about, one of
  // which a violation must blame: "rollout_rs_threshold", "old_log_probs".
  std::vector<std::string> blamed;
};

// What we answered, as far as it was asked for.
struct GoldenAnswer {
  GoldenTensor<double> weights;
  std::vector<uint8_t> keep_mask;
  std::optional<double> loss;
  GoldenTensor<double> gradient;
  MetricMap metrics;
};

// GoogleTest prints parameters with this.
std::ostream& operator<<(std::ostream& out, const Golden& golden);

// Every file of tests/golden/<folder>, by name. Aborts the test program where a
// file is not a golden.
std::vector<Golden> ReadGoldens(const std::string& folder);

// The same; under sanitizers, which look for other things than numbers, one
// file of each eight.
std::vector<Golden> SampleGoldens(const std::string& dialect);

// True if the request asks for loss and gradient: where the file has a loss,
// and where the original met its error on the way to one.
bool AsksForLoss(const Golden& golden);

// What the request tells the dialect.
RequestFacts FactsOf(const Golden& golden);

// Sentences about every difference that is larger than the goldens' tolerances.
std::vector<std::string> Differences(const Golden& golden,
                                     const GoldenAnswer& answer);

// True if the path of one of `violations` names a field that the golden's error
// is about.
bool Blames(const Violations& violations, const Golden& golden);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_DIALECTS_GOLDEN_H_
