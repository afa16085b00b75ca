// RLVRConfig's policy loss and train_infer_correction, from alibaba/ROLL
// @8eb27cc2: roll/pipeline/rlvr. README.md lists the quirks and decisions.
//
// - is_weight is TRUNCATE of old/rollout, of tokens, the row's product or its
//   geometric mean. Filters are rules DROP of that ratio or of the two
//   probabilities' difference.
// - Losses: PPO with dual clip, CISPO (cispo, tis), REINFORCE (vanilla), DRO
//   (kimi15); a row's ratio, which a pg_variant has not, is the mean over kept
//   tokens.
// - The KL penalty is K3 over kept tokens.
// - Denominators: rows' kept tokens, and rows with tokens; or tokens.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_H_

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

// See Dialect::translate.
Translation TranslateRoll(const google::protobuf::Struct& block,
                          bool ignore_unknown_fields,
                          const RequestFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_H_
