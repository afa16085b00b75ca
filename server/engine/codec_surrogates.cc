#include "server/engine/codec_surrogates.h"

namespace counterweight::server {
namespace {

using kernels::LossLevel;
using kernels::Surrogate;

constexpr SurrogateRow kSurrogates[] = {
    {v1::SURROGATE_PPO_CLIP, Surrogate::kPpoClip, LossLevel::kToken},
    {v1::SURROGATE_GSPO, Surrogate::kPpoClip, LossLevel::kSequence},
    {v1::SURROGATE_GSPO_TOKEN, Surrogate::kPpoClip, LossLevel::kSequenceToken},
    {v1::SURROGATE_CISPO, Surrogate::kCispo, LossLevel::kToken},
    {v1::SURROGATE_SAPO, Surrogate::kSapo, LossLevel::kToken},
    {v1::SURROGATE_REINFORCE, Surrogate::kReinforce, LossLevel::kToken},
    {v1::SURROGATE_GPG, Surrogate::kReinforce, LossLevel::kToken},
    {v1::SURROGATE_DRO, Surrogate::kDro, LossLevel::kToken},
    {v1::SURROGATE_DPPO_TV, Surrogate::kDppoTv, LossLevel::kToken},
    {v1::SURROGATE_DPPO_KL, Surrogate::kDppoKl, LossLevel::kToken},
    {v1::SURROGATE_GEO_MEAN, Surrogate::kGeoMean, LossLevel::kToken},
    {v1::SURROGATE_LUSPO, Surrogate::kPpoClip, LossLevel::kSequence},
    {v1::SURROGATE_VESPO, Surrogate::kVespo, LossLevel::kToken},
    {v1::SURROGATE_ROLLOUT_IS, Surrogate::kRolloutIs, LossLevel::kToken},
    {v1::SURROGATE_KL_COV, Surrogate::kKlCov, LossLevel::kToken},
    {v1::SURROGATE_CLIP_COV, Surrogate::kClipCov, LossLevel::kToken},
    {v1::SURROGATE_CROSS_ENTROPY, Surrogate::kCrossEntropy, LossLevel::kToken},
    {v1::SURROGATE_IMPORTANCE_SAMPLING, Surrogate::kImportanceSampling,
     LossLevel::kToken},
};

constexpr bool EverySurrogateHasARow() {
  for (int s = 1; s < kernels::kNumSurrogates; ++s) {
    bool found = false;
    for (const SurrogateRow& row : kSurrogates) {
      found = found || row.surrogate == static_cast<Surrogate>(s);
    }
    if (!found) return false;
  }
  return true;
}
static_assert(EverySurrogateHasARow());

}  // namespace

std::span<const SurrogateRow> SurrogateRows() { return kSurrogates; }

const SurrogateRow* FindSurrogate(v1::Surrogate wire) {
  for (const SurrogateRow& row : kSurrogates) {
    if (row.wire == wire) return &row;
  }
  return nullptr;
}

}  // namespace counterweight::server
