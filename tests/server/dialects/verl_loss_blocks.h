// Blocks with a policy_loss, and their translations.
#ifndef COUNTERWEIGHT_TESTS_SERVER_DIALECTS_VERL_LOSS_BLOCKS_H_
#define COUNTERWEIGHT_TESTS_SERVER_DIALECTS_VERL_LOSS_BLOCKS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/engine/dialects/verl.h"
#include "tests/server/dialects/blocks.h"
#include "tests/server/dialects/translations.h"

namespace counterweight::server {

// All tensors are sent, and the loss is requested.
inline RequestFacts LossFacts() {
  RequestFacts facts;
  facts.has_rollout_log_probs = true;
  facts.has_old_log_probs = true;
  facts.has_current_log_probs = true;
  facts.has_ref_log_probs = true;
  facts.has_advantages = true;
  facts.wants_loss = true;
  facts.seed = 7;
  facts.num_sequences = 2;
  facts.padded_length = 4;
  facts.asked = {.release = {0, 9, 0}, .is_named = true};
  return facts;
}

inline Translation Translate(const std::string& json,
                             const RequestFacts& facts = LossFacts(),
                             bool ignore_unknown_fields = false) {
  return TranslateVerl(Block(json), ignore_unknown_fields, facts);
}

inline Translation TranslateLoss(const std::string& policy_loss,
                                 const RequestFacts& facts = LossFacts()) {
  return Translate(R"({"policy_loss": )" + policy_loss + "}", facts);
}

inline kernels::LossSpec VerlLossOf(const std::string& policy_loss) {
  const Translation t = TranslateLoss(policy_loss);
  EXPECT_THAT(t.violations, testing::IsEmpty()) << policy_loss;
  EXPECT_THAT(kernels::Validate(t.spec), testing::IsEmpty()) << policy_loss;
  return t.spec.loss;
}

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_DIALECTS_VERL_LOSS_BLOCKS_H_
