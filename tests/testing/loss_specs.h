// Losses in one line.
#ifndef COUNTERWEIGHT_TESTS_TESTING_LOSS_SPECS_H_
#define COUNTERWEIGHT_TESTS_TESTING_LOSS_SPECS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/spec.h"
#include "kernels/surrogate_info.h"
#include "tests/testing/batch_builder.h"
#include "tests/testing/random_rows.h"

namespace counterweight::kernels {

// Returns a spec with only a loss; drift is that of current against old.
CorrectionSpec WithLoss(const LossSpec& loss);

// One row with old and rollout log-probs of 0, so that each log ratio of
// current is its log-prob; every token counts.
Row PolicyRow(const std::vector<float>& current,
              const std::vector<float>& advantages);

// Factors of 1: the loss is a plain sum.
inline constexpr LossReduction kPlainSum = {.count = BatchCount::kOne};

// Every surrogate there is.
std::vector<Surrogate> Surrogates();

// Whether its kInfo has `trait`.
bool HasTrait(Surrogate surrogate, SurrogateTrait trait);

// Returns a loss of that kind with bounds that take effect at that spread:
// clips, caps, dual clip, a selection.
LossSpec BusyLoss(Surrogate surrogate, double spread);

// The same with a random level, source, reduction, clamps, KL penalty..., of
// any surrogate or of that one; padded_length is at least `longest`, or 0. Each
// number has its own generator: a new parameter changes no other number.
LossSpec RandomLoss(Random& random, double spread, int64_t longest,
                    std::optional<Surrogate> surrogate = std::nullopt);

// RandomSpec() with a RandomLoss(). Valid.
CorrectionSpec RandomLossSpec(
    Random& random, double spread, int64_t longest,
    std::optional<Surrogate> surrogate = std::nullopt);

// One line for the message of a failure.
std::string Describe(const LossSpec& loss);

// Random groups, some rows in none.
void SetRandomGroups(Random& random, OwnedBatch& batch);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_LOSS_SPECS_H_
