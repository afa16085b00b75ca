#include "server/engine/codec_group_systems.h"

namespace counterweight::server {
namespace {

using kernels::GroupBaseline;
using kernels::GroupVoters;
using kernels::RewardStd;
using kernels::Whitening;

// In every system rejected rows vote.
constexpr GroupBaseline kMean = {.voters = GroupVoters::kAll};
constexpr GroupBaseline kOthers = {.leaves_one_out = true,
                                   .voters = GroupVoters::kAll};

constexpr GroupBaseline Over(GroupBaseline baseline, RewardStd std,
                             double epsilon) {
  baseline.std = std;
  baseline.epsilon = epsilon;
  return baseline;
}
constexpr GroupBaseline OrReward(GroupBaseline baseline) {
  baseline.lonely_is_raw = true;
  return baseline;
}
constexpr GroupBaseline Whitened(GroupBaseline baseline, Whitening whitening) {
  baseline.whitening = whitening;
  return baseline;
}
// compute_reward's clip_range, by default.
constexpr GroupBaseline Clipped(GroupBaseline baseline) {
  baseline.clip = 10.0;
  return baseline;
}

constexpr GroupBaseline kGrpo = Over(kMean, RewardStd::kGroup, 1e-6);

// nemo_rl/algorithms/{utils,advantage_estimator}.py;
// openrlhf/trainer/ppo_utils/ experience_maker.py;
// skyrl_train/utils/ppo_utils.py; slime/ray/rollout.py;
// trl/trainer/grpo_trainer.py; verl/trainer/ppo/core_algos.py.
constexpr GroupSystem kSystems[] = {
    {"nemo_rl.grpo", Over(kMean, RewardStd::kGroup, 1e-6)},
    {"nemo_rl.grpo_leave_one_out", Over(kOthers, RewardStd::kOthers, 1e-6)},
    {"nemo_rl.grpo_leave_one_out_without_std", kOthers},
    {"nemo_rl.grpo_without_std", kMean},
    {"nemo_rl.reinforce_plus_plus_baseline",
     Whitened(kMean, Whitening::kPopulation)},
    {"openrlhf.dr_grpo", Clipped(kMean)},
    {"openrlhf.group_norm", Clipped(Over(kMean, RewardStd::kGroup, 1e-9))},
    {"openrlhf.reinforce_baseline",
     Whitened(Clipped(kMean), Whitening::kPopulation)},
    {"openrlhf.rloo", Clipped(kOthers)},
    {"skyrl.grpo", OrReward(kGrpo)},
    {"skyrl.grpo_without_std", OrReward(kMean)},
    {"skyrl.rloo", kOthers},
    {"slime.grpo", kGrpo, /*merges_ragged=*/true},
    {"slime.grpo_without_std", kMean, /*merges_ragged=*/true},
    {"slime.reinforce_plus_plus_baseline", Whitened(kMean, Whitening::kSample),
     /*merges_ragged=*/true},
    {"trl.batch", Over(kMean, RewardStd::kBatch, 1e-4)},
    {"trl.group", Over(kMean, RewardStd::kGroup, 1e-4)},
    {"trl.none", kMean},
    {"verl.grpo", OrReward(kGrpo)},
    {"verl.grpo_vectorized", OrReward(kGrpo)},
    {"verl.grpo_without_std", OrReward(kMean)},
    {"verl.reinforce_plus_plus_baseline",
     Whitened(OrReward(kMean), Whitening::kSample)},
    {"verl.rloo", OrReward(kOthers)},
    {"verl.rloo_vectorized", kOthers},
};

}  // namespace

std::span<const GroupSystem> GroupSystems() { return kSystems; }

}  // namespace counterweight::server
