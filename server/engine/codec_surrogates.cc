#include "server/engine/codec_surrogates.h"

namespace counterweight::server {
namespace {

using kernels::LossLevel;
using kernels::Surrogate;

constexpr uint32_t kPpoFields = kClip | kDualClip | kRatioCap | kLogRatioClamp;

constexpr SurrogateRow kSurrogates[] = {
    {v1::SURROGATE_PPO_CLIP, Surrogate::kPpoClip, LossLevel::kToken,
     kPpoFields},
    {v1::SURROGATE_GSPO, Surrogate::kPpoClip, LossLevel::kSequence, kPpoFields},
    {v1::SURROGATE_GSPO_TOKEN, Surrogate::kPpoClip, LossLevel::kSequenceToken,
     kPpoFields},
    {v1::SURROGATE_CISPO, Surrogate::kCispo, LossLevel::kToken,
     kClip | kLogRatioClamp},
    {v1::SURROGATE_SAPO, Surrogate::kSapo, LossLevel::kToken,
     kTau | kLogRatioClamp},
    {v1::SURROGATE_REINFORCE, Surrogate::kReinforce, LossLevel::kToken, 0},
    {v1::SURROGATE_GPG, Surrogate::kReinforce, LossLevel::kToken, 0},
    {v1::SURROGATE_DRO, Surrogate::kDro, LossLevel::kToken, kBeta},
    {v1::SURROGATE_DPPO_TV, Surrogate::kDppoTv, LossLevel::kToken,
     kClip | kRatioCap | kLogRatioClamp},
    {v1::SURROGATE_DPPO_KL, Surrogate::kDppoKl, LossLevel::kToken,
     kClip | kRatioCap | kLogRatioClamp},
    {v1::SURROGATE_GEO_MEAN, Surrogate::kGeoMean, LossLevel::kToken, kClip},
    {v1::SURROGATE_LUSPO, Surrogate::kPpoClip, LossLevel::kSequence,
     kPpoFields},
    {v1::SURROGATE_VESPO, Surrogate::kVespo, LossLevel::kToken, kShape},
    {v1::SURROGATE_ROLLOUT_IS, Surrogate::kRolloutIs, LossLevel::kToken,
     kClip | kLogRatioClamp},
    {v1::SURROGATE_KL_COV, Surrogate::kKlCov, LossLevel::kToken,
     kFraction | kKlWeight},
    {v1::SURROGATE_CLIP_COV, Surrogate::kClipCov, LossLevel::kToken,
     kClip | kFraction | kBounds},
    {v1::SURROGATE_CROSS_ENTROPY, Surrogate::kCrossEntropy, LossLevel::kToken,
     0},
    {v1::SURROGATE_IMPORTANCE_SAMPLING, Surrogate::kImportanceSampling,
     LossLevel::kToken, kLogRatioClamp},
};

}  // namespace

std::span<const SurrogateRow> SurrogateRows() { return kSurrogates; }

const SurrogateRow* FindSurrogate(v1::Surrogate wire) {
  for (const SurrogateRow& row : kSurrogates) {
    if (row.wire == wire) return &row;
  }
  return nullptr;
}

}  // namespace counterweight::server
