// Losses without any bound on the update.
#include "kernels/methods/building_blocks.h"
#include "kernels/methods/rows.h"

namespace counterweight::kernels::methods {

std::vector<Method> UnclippedLossRows() {
  return {
      {.name = "reinforce",
       .origin = "verl",
       .origin_name = "reinforce",
       .summary = "Log-probs times advantages, averaged over tokens.",
       .formula = "loss = (1/n) sum_t -A_t lp_t; metrics of "
                  "l = current - rollout",
       .when_to_use = "One gradient step for each batch, on data that is on "
                      "policy; add a weight where it is not quite.",
       .reference = "R. Williams, Simple Statistical Gradient-Following "
                    "Algorithms for Connectionist Reinforcement Learning, 1992",
       .parameters = {},
       .make =
           [](Values) {
             return OnlyLoss(
                 Loss(Surrogate::kReinforce, RatioSource::kCurrentRollout));
           }},
      {.name = "gpg",
       .origin = "verl",
       .origin_name = "gpg",
       .summary = "Group policy gradient: reinforce, with advantages made by "
                  "group.",
       .formula = "loss = (1/n) sum_t -A_t lp_t; metrics of l = current - old",
       .when_to_use = "reinforce beside old log-probs, whose drift the metrics "
                      "then tell.",
       .reference = "X. Chu et al., GPG, 2025, arXiv:2504.02546",
       .parameters = {},
       .make =
           [](Values) {
             return OnlyLoss(
                 Loss(Surrogate::kReinforce, RatioSource::kCurrentOld));
           }},
      {.name = "importance_sampling",
       .origin = "skyrl",
       .origin_name = "policy_loss_type: importance_sampling",
       .summary = "The ratio times advantages, unclipped.",
       .formula = "loss = (1/n) sum_t -A_t r_t; r = exp(l); l = current - old",
       .when_to_use = "Data that is all but on policy, where a bound would "
                      "only add bias.",
       .reference = "SkyRL policy_loss_type importance_sampling",
       .parameters = {},
       .make =
           [](Values) {
             return OnlyLoss(Loss(Surrogate::kImportanceSampling,
                                  RatioSource::kCurrentOld));
           }},
      {.name = "cross_entropy",
       .origin = "skyrl",
       .origin_name = "policy_loss_type: cross_entropy",
       .summary = "Negative log-probs, added up.",
       .formula = "loss = sum_t -lp_t; metrics of l = current - rollout",
       .when_to_use = "Supervised steps in the same loop: advantages are sent "
                      "but not read.",
       .reference = "SkyRL policy_loss_type cross_entropy",
       .parameters = {},
       .make =
           [](Values) {
             LossSpec loss =
                 Loss(Surrogate::kCrossEntropy, RatioSource::kCurrentRollout);
             loss.reduction.count = BatchCount::kOne;
             return OnlyLoss(loss);
           }},
  };
}

}  // namespace counterweight::kernels::methods
