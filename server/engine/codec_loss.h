// Conversions of policy losses between proto and kernel types. Part of the
// codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_LOSS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_LOSS_H_

#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "counterweight/v1/method.pb.h"
#include "kernels/spec.h"
#include "server/engine/dialect.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// Fills spec->loss. Either message may be null: absent. Violations get field
// paths below `prefix`: "method.config.policy_loss.clip_low".
void DecodeLoss(const v1::PolicyLoss* loss, const v1::KlPenalty* kl,
                const RequestFacts& facts, const std::string& prefix,
                kernels::CorrectionSpec* spec, Violations* violations);

// Encodes as much of `loss` as the wire can express; nothing without a loss.
void EncodeLoss(const kernels::LossSpec& loss, v1::CorrectionConfig* config);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_LOSS_H_
