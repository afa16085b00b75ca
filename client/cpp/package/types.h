// Batches and answers without a type of gRPC or protobuf. Numbers of enums are
// those of the contract (proto/counterweight/v1).
#ifndef COUNTERWEIGHT_CLIENT_CPP_PACKAGE_TYPES_H_
#define COUNTERWEIGHT_CLIENT_CPP_PACKAGE_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/cpp/location.h"
#include "client/cpp/options.h"
#include "client/cpp/status.h"

namespace counterweight {

using client::FieldViolation;
using client::Location;
using client::Status;
using client::StatusCode;

// The content of a tensor; [positions] unless its comment differs.
enum class Role {
  // Inputs: log-probs in nats, float32, bfloat16 or float16.
  kRolloutLogProbs = 1,
  kOldLogProbs = 2,
  kCurrentLogProbs = 3,
  kRefLogProbs = 4,
  // U8, each 0 or 1: 1 = the token counts. Required.
  kResponseMask = 5,
  // Any unit, already broadcast.
  kAdvantages = 6,
  // I32: version of the policy that sampled each token, -1: unknown. Needs
  // Request::policy_version.
  kPolicyVersions = 10,
  // Outputs: F32; exactly 0 where the mask is 0.
  kWeights = 16,
  // U8: 1 = the token stays in the loss.
  kKeepMask = 17,
  // U16: bit i = rule i dropped the token or zeroed its weight.
  kTokenReasons = 18,
  // U16, [sequences]: the OR of the sequence's token reasons.
  kSequenceReasons = 19,
  // F32: d loss / d current log-probs.
  kGradient = 20,
};

enum class DType { kF32 = 1, kBF16 = 2, kF16 = 3, kU8 = 4, kU16 = 5, kI32 = 6 };

// The treatment of a NaN or an infinity where the mask is 1.
enum class NonFinite { kReject = 1, kDrop = 2, kNeutralize = 3 };

// An input, read from the caller's memory; little-endian, C-contiguous.
struct Input {
  Role role = Role::kResponseMask;
  DType dtype = DType::kU8;
  const void* data = nullptr;
  size_t bytes = 0;
  Location location = Location::kHost;
};
inline Input Float32(Role role, std::span<const float> values) {
  return {role, DType::kF32, values.data(), values.size_bytes()};
}
inline Input ResponseMask(std::span<const uint8_t> mask) {
  return {Role::kResponseMask, DType::kU8, mask.data(), mask.size_bytes()};
}

inline Input PolicyVersions(std::span<const int32_t> versions) {
  return {Role::kPolicyVersions, DType::kI32, versions.data(),
          versions.size_bytes()};
}

// Positions [start, end) of one sequence, sampled by one policy version.
struct VersionSpan {
  int64_t sequence = 0;
  int64_t start = 0;
  int64_t end = 0;
  int64_t policy_version = 0;
};

// An output to return, written to `data`; null: memory of the Result.
struct Output {
  Role role = Role::kWeights;
  void* data = nullptr;
  size_t bytes = 0;
  // kCuda needs an address.
  Location location = Location::kHost;
};

// The method to compute. Copyable; any number of calls may use it.
class Method {
 public:
  // A row of the methods table; `parameters` replace its defaults.
  static Method Preset(std::string_view name,
                       const std::map<std::string, double>& parameters = {});
  // A system's block (of "verl", "trl", "slime", ...) as JSON; empty:
  // the system's defaults. `release`, such as "0.9.1"; empty: the newest.
  // kInvalidArgument if the block is not a JSON object.
  static Status Dialect(std::string_view system, std::string_view block_json,
                        Method* method, std::string_view release = "");
  // Any method as the JSON of counterweight.v1.Method, for configurations
  // spelled out. kInvalidArgument if it is not one.
  static Status FromJson(std::string_view json, Method* method);

 private:
  friend class Client;
  // The message's bytes.
  std::string message_;
};

// The tokens among which KL_COV and CLIP_COV select.
enum class SelectionScope : uint8_t {
  kUnspecified = 0,
  kCall = 1,  // those of each call
};

// Sums over all data-parallel ranks of a step, which divide losses in place of
// the batch's own counts; counterweight.v1.GlobalCounts lists the methods that
// need each. A count of 0 makes the loss 0.
struct GlobalCounts {
  std::optional<int64_t> num_tokens;
  std::optional<int64_t> num_sequences;
  std::optional<int64_t> num_kept_tokens;
  std::optional<int64_t> num_kept_sequences;
  std::optional<int64_t> num_ranks;
  std::optional<double> weight_sum;
  // Instead of weight_sum; StepTotals::counts has it.
  std::optional<double> weight_mean;
  SelectionScope selection_scope = SelectionScope::kUnspecified;
};

// One batch. All memory belongs to the caller, and must not change until the
// call returns.
struct Request {
  // Padded: [num_sequences, length]. Packed: sequence_lengths instead, rows in
  // succession without padding, with padded_length for formulas that read it.
  int64_t num_sequences = 0;
  int64_t length = 0;
  std::optional<std::vector<int64_t>> sequence_lengths;
  std::optional<int64_t> padded_length;

  Method method;
  std::vector<Input> inputs;
  // Empty: the server's choice.
  std::vector<Output> outputs;
  // Computes the loss of a dialect without its gradient.
  bool compute_loss = false;
  // Leaves metrics and rules out, and publishes no drift.
  bool omit_metrics = false;
  // Returns Result::sums: the batch is a part of a step.
  bool partial_sums = false;
  // Leaves the method's loss and gradient out, and needs no global_counts: for
  // the first pass over a step, before its counts are known.
  bool omit_loss = false;
  NonFinite non_finite = NonFinite::kReject;
  // Empty: the client makes one.
  std::string request_id;
  // Labels: the training run, the worker, the policy's version, the step; may
  // be absent.
  std::string run;
  std::string replica;
  std::optional<int64_t> policy_version;
  // Optimizer step that the batch is a part of, >= 0: gauges show the step
  // instead of each batch.
  std::optional<int64_t> step;
  std::optional<uint64_t> seed;
  GlobalCounts global_counts;
  // Group of each sequence, or empty.
  std::vector<int64_t> group_ids;
  // Divisor of each sequence's sum instead of its number of tokens, in losses
  // aggregated by SEQ_MEAN_TOKEN_MEAN; or empty. Each finite and > 0.
  std::vector<double> row_divisors;
  // Instead of PolicyVersions(): ascending by sequence and start, without
  // overlap; other positions are unknown.
  std::vector<VersionSpan> version_spans;
  // With tensors in Location::kCuda: the stream (cudaStream_t, CUstream) of the
  // work that makes them. The call waits for it, whatever the timeout is; its
  // outputs are complete when it returns. Null: the default stream.
  void* cuda_stream = nullptr;
};

// An output at its address.
struct OutputTensor {
  Role role = Role::kWeights;
  DType dtype = DType::kF32;
  std::byte* data = nullptr;
  size_t bytes = 0;

  // The elements. REQUIRES: T is the dtype's type.
  template <typename T>
  std::span<T> As() const {
    return {reinterpret_cast<T*>(data), bytes / sizeof(T)};
  }
};

// The tokens of one range of staleness, the policy's version minus the token's.
struct StalenessBucket {
  int64_t first = 0;
  std::optional<int64_t> last;  // inclusive; absent: no end
  int64_t tokens = 0;
  // Means over the tokens of -l and of exp(l) - 1 - l, nats, where l is the log
  // ratio of the method's drift metrics; NaN without tokens.
  double kl = 0.0;
  double k3 = 0.0;
};

// Drift by staleness, of the tokens with mask 1.
struct Staleness {
  // 0, 1, 2, 3 to 4, 5 to 8, 9 or more.
  std::vector<StalenessBucket> buckets;
  int64_t unknown_tokens = 0;  // in no bucket
  double mean = 0.0;           // of the buckets' tokens; NaN without any
  int64_t max = 0;
};

// The sums of a part of a step, before they are rounded. Those of several parts
// add up, in any order and grouping and without an error, to those of one batch
// with all rows: number by number, as an all-reduce of SUM and one of MAX do,
// of 8192 vectors at most. Lengths depend on the method and on whether tokens
// have versions; together they are at most 8 KiB with up to three rules.
struct PartialSums {
  std::vector<double> sums;    // numbers that add up
  std::vector<double> maxima;  // the largest of each number counts
};

// Effect of one rejection rule.
struct RuleSummary {
  std::string name;
  int64_t dropped_tokens = 0;
  int64_t dropped_sequences = 0;
};

// The server's seconds in each stage.
struct Timing {
  double decode_seconds = 0;
  double queue_seconds = 0;
  double compute_seconds = 0;
  double encode_seconds = 0;
  double receive_seconds = 0;
};

// A batch's answer. Reuse one for successive batches: it keeps its memory.
// Copies share that memory. Undefined after an error.
struct Result {
  std::vector<OutputTensor> outputs;
  std::optional<double> loss;
  std::map<std::string, double> metrics;
  std::vector<RuleSummary> rules;
  // Absent unless the request has versions of tokens, and if omit_metrics.
  std::optional<Staleness> staleness;
  // Absent unless the request has partial_sums.
  std::optional<PartialSums> sums;
  int64_t non_finite_tokens = 0;
  std::vector<std::string> warnings;
  std::string request_id;
  uint32_t numerics_version = 0;
  // "cpu" or "cuda".
  std::string backend;
  Timing timing;
  client::Transport transport = client::Transport::kUnary;
  int attempts = 0;

  // Null if the answer has no such output.
  const OutputTensor* Find(Role role) const;

 private:
  friend class Client;
  struct Memory;
  std::shared_ptr<Memory> memory_;
};

// The answer that one call with all rows of a step would have, bit for bit and
// without tensors; members of Result are as there.
struct StepTotals {
  PartialSums sums;  // of all parts
  std::optional<double> loss;
  std::map<std::string, double> metrics;
  std::vector<RuleSummary> rules;
  std::optional<Staleness> staleness;
  int64_t non_finite_tokens = 0;
  // But for those about tensors that the method does not read.
  std::vector<std::string> warnings;
  // Those that the method reads, for Request::global_counts of the calls that
  // compute the step's losses. Absent if it reads none.
  std::optional<GlobalCounts> counts;
  // Why the method's loss cannot divide by the counts of a step; empty if it
  // can, or has none.
  std::string counts_refusal;
};

// The server's identity.
struct ServerInfo {
  std::string version;
  std::string revision;
  uint32_t numerics_version = 0;
  std::string backend;
  std::vector<std::string> dialects;
  std::vector<std::string> features;
  // Limits of one request; see proto/README.md.
  uint64_t max_message_bytes = 0;
  int64_t max_tokens = 0;
  int64_t max_sequences = 0;
};

// A row of the methods table.
struct MethodInfo {
  std::string name;
  std::string origin;
  std::string summary;
  std::string formula;
  std::string when_to_use;
  // Default values by name.
  std::map<std::string, double> parameters;
};

}  // namespace counterweight

#endif  // COUNTERWEIGHT_CLIENT_CPP_PACKAGE_TYPES_H_
