// Conversions of spelled-out methods between proto and kernel types. Part of
// the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_CONFIG_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_CONFIG_H_

#include <optional>
#include <string>
#include <vector>

#include "counterweight/v1/method.pb.h"
#include "kernels/spec.h"
#include "server/engine/dialect.h"
#include "server/engine/result.h"

namespace counterweight::server {

// Decodes a spelled-out method, without kernels::Validate.
Result<kernels::CorrectionSpec> DecodeConfig(const v1::CorrectionConfig& config,
                                             const RequestFacts& facts);

// Returns the given or default names of config's rules, parallel to the rules
// of `spec`, its decoded form.
Result<std::vector<std::string>> ReadRuleNames(
    const v1::CorrectionConfig& config, const kernels::CorrectionSpec& spec);

// Encodes a spec: DecodeConfig(*EncodeConfig(x)) is x for a request with x's
// seed and all log-probs. Returns nothing if the wire cannot express some part
// of x, such as clamps that differ by sign. REQUIRES: kernels::Validate(spec)
// is empty.
std::optional<v1::CorrectionConfig> EncodeConfig(
    const kernels::CorrectionSpec& spec);

// Returns unique names of a spec's rules, "mean_k3", "mean_k3_2".
std::vector<std::string> DefaultRuleNames(const kernels::CorrectionSpec& spec);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_CONFIG_H_
