// Conversions between proto and kernel types: the only code that knows both.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "kernels/batch.h"
#include "kernels/corrector.h"
#include "server/engine/codec_counts.h"
#include "server/engine/codec_layout.h"
#include "server/engine/codec_method.h"
#include "server/engine/codec_outputs.h"
#include "server/engine/codec_partial.h"
#include "server/engine/codec_tensors.h"
#include "server/engine/codec_versions.h"
#include "server/engine/result.h"
#include "server/engine/stream_batch.h"

namespace counterweight::server {

// A valid request in kernel types; immutable. Its views point into the
// CorrectRequest, which must outlive it, or into regions that it keeps.
struct Decoded {
  Layout layout;
  Tensors tensors;
  Method method;
  Groups groups;
  Versions versions;
  Outputs outputs;
  StatedCounts stated;
  // CorrectRequest.row_divisors, where the loss reads them.
  std::vector<double> row_divisors;
  std::vector<std::string> warnings;
  // True if the answer has neither metrics nor rules.
  bool omits_metrics = false;
  // True if another shape would not change the method.
  bool is_of_any_shape = false;
  // CorrectResponse.sums is wanted.
  bool returns_sums = false;
  PartialIdentity partial;

  // CorrectResult::token_metrics are wanted: of a batch that is no part of a
  // step, in host memory.
  bool HasTokenMetrics() const;
  // Something reads the method's derived tensors.
  bool DerivesTensors() const;
  // The correction waits for a pass over the whole batch in host memory: a
  // filter of rows, or derived tensors.
  bool HasFirstPass() const;
};

// Returns all violations, or a request that can be computed once a stream's
// inputs and a shared mask are there. The result is meaningless if
// source.is_wanted returned false.
Result<Decoded> Decode(const v1::CorrectRequest& request,
                       const RequestLimits& limits,
                       const PayloadSource& source);

// The facts of a request that its method reads, but those of its shape.
RequestFacts FactsOf(const v1::CorrectRequest& request, const Tensors& tensors);

// The kernels' view of a request. `decoded` must outlive it, and not be moved.
kernels::Batch BatchOf(const Decoded& decoded);
kernels::PolicyVersions VersionsOf(const Decoded& decoded);

struct PlacedInputs {
  std::vector<StreamTensor> tensors;
  // BatchOf() and VersionsOf() with these addresses.
  kernels::Batch batch;
  kernels::PolicyVersions versions;
};

// Places a stream's inputs in `memory`, InputBytes() bytes aligned to 64, in
// succession.
PlacedInputs PlaceInputs(std::byte* memory, const Decoded& decoded);

// An answer's numbers beside its metrics.
struct AnswerNumbers {
  struct Rule {
    int64_t dropped_tokens, dropped_sequences;
  };

  std::optional<double> loss;
  int64_t tokens = 0;
  int64_t non_finite_tokens = 0;
  int64_t positive_log_probs = 0;
  // [spec.num_rules]
  std::array<Rule, kernels::kMaxRules> rules{};
};

AnswerNumbers NumbersOf(const Method& method, const kernels::BatchSums& sums);

// Makes the metrics that sums have: the method's report, or the kernels' own.
void ReportSums(const Method& method, const kernels::BatchSums& sums,
                MetricMap* metrics, Violations* violations);

// The same with those of tokens and filters. Violations are what the sums alone
// show to be wrong; a part of a step has no metrics then, as that is judged by
// the step's sums.
Violations Report(const Decoded& decoded, const kernels::CorrectResult& result,
                  MetricMap* metrics);

// Writes these numbers, the metrics and the warnings.
void EncodeNumbers(const Decoded& decoded, const AnswerNumbers& numbers,
                   const MetricMap& metrics, v1::CorrectResponse* response);

// Writes everything but the tensors. Returns the violations of `report`; the
// response must not be sent then.
Violations Encode(const Decoded& decoded, const kernels::CorrectResult& result,
                  v1::CorrectResponse* response);

// Writes the methods table for ListMethods.
void EncodeMethods(v1::ListMethodsResponse* response);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_H_
