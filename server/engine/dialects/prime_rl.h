// compute_loss's configuration, from PrimeIntellect-ai/prime-rl @559b4477:
// src/prime_rl/trainer/rl/loss.py. README.md lists the quirks and decisions.
//
// - Two policies: the current one and the rollout's. The weight is their ratio,
//   without a bound.
// - "default" is a rule DROP of the probabilities' difference for A > 0 and one
//   for A <= 0; "ipo" is one rule of it for all.
// - The loss is the ratio's on kept tokens, and the square of its logarithm on
//   all: the KL penalty K2 of current and rollout.
// - "ref_kl", a component beside them, is one rule with the bound -0.2; its
//   advantages are derived, ref minus current log-probs as constants. Its
//   metrics skip empty rows, and its other constants are no fields.
// - Denominators are tokens of response_mask, or `rl_scale`, of ref_kl
//   `ref_kl_scale`.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_PRIME_RL_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_PRIME_RL_H_

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

// See Dialect::translate.
Translation TranslatePrimeRl(const google::protobuf::Struct& block,
                             bool ignore_unknown_fields,
                             const RequestFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_PRIME_RL_H_
