// How a loss of the wire is added up, and the counts that a caller knows of all
// ranks. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_REDUCTION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_REDUCTION_H_

#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "counterweight/v1/method.pb.h"
#include "kernels/spec.h"
#include "server/engine/codec_method.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// Aggregation, denominator and norm_length. Violations get field paths below
// `prefix`, or of global_counts.
kernels::LossReduction DecodeReduction(const v1::PolicyLoss& loss,
                                       const LossFacts& facts,
                                       const std::string& prefix,
                                       Violations* violations);

// Checks global_counts, whatever reads it; weights that are normalized take
// their mean from it where it has weight_sum.
void DecodeGlobalWeights(const v1::CorrectRequest& request,
                         kernels::CorrectionSpec* spec, Violations* violations);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_REDUCTION_H_
