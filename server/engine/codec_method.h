// Methods between proto and kernel types, both ways. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_METHOD_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_METHOD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "counterweight/v1/method.pb.h"
#include "kernels/spec.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// Log-probs that a request carries; decides what UNSPECIFIED sources mean.
struct PresentLogProbs {
  bool rollout = false;
  bool old = false;
  bool current = false;
};

// What a loss takes from the request beside its own fields.
struct LossFacts {
  PresentLogProbs present;
  int64_t padded_length = 0;
  uint64_t seed = 0;
  // Null: not sent.
  const v1::GlobalCounts* global_counts = nullptr;
};

// A spelled-out method in kernel types. Violations get field paths below
// `prefix`, e.g. "method.config.".
kernels::CorrectionSpec DecodeConfig(const v1::CorrectionConfig& config,
                                     const LossFacts& facts,
                                     const std::string& prefix,
                                     std::vector<std::string>* rule_names,
                                     Violations* violations);

// The same spelled out in proto: DecodeConfig(*EncodeConfig(x)) is x for a
// request with x's seed and all log-probs. Nothing if the wire has no words for
// some part of x, such as clamps that differ by sign. REQUIRES:
// kernels::Validate(spec) is empty.
std::optional<v1::CorrectionConfig> EncodeConfig(
    const kernels::CorrectionSpec& spec);

// Unique names of a spec's rules, "mean_k3", "mean_k3_2".
std::vector<std::string> DefaultRuleNames(const kernels::CorrectionSpec& spec);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_METHOD_H_
