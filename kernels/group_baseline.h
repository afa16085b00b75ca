// Advantages of answers to one prompt, from their rewards, by baselines that
// know which rows were rejected. Formulas and sources: kernels/METHODS.md,
// "Group baselines".
#ifndef COUNTERWEIGHT_KERNELS_GROUP_BASELINE_H_
#define COUNTERWEIGHT_KERNELS_GROUP_BASELINE_H_

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace counterweight::kernels {

// Rows with rewards that make means and standard deviations.
enum class GroupVoters : uint8_t {
  kAll,
  kKept,       // with a kept token
  kFullyKept,  // with tokens, all kept
};

// Standard deviation that divides, with n - 1 below the sum.
enum class RewardStd : uint8_t {
  kNone,
  kGroup,   // of the group's voters
  kBatch,   // of all voters
  kOthers,  // of the group's other voters; one has 0
};

// Makes (a - mean) / s of the advantages a, each as often as its row has kept
// tokens.
enum class Whitening : uint8_t {
  kNone,
  kSample,      // s = sqrt(variance + kWhiteningEpsilon), n - 1 below the sum
  kPopulation,  // s = sqrt(max(variance, kWhiteningEpsilon)), n below it
};

struct GroupBaseline {
  // The mean over the other voters of the group, instead of all.
  bool leaves_one_out = false;
  RewardStd std = RewardStd::kNone;
  GroupVoters voters = GroupVoters::kKept;
  // Voters that a group needs, >= 1, else it is lonely. The mean of others
  // needs two, and so does a standard deviation.
  int64_t fewest_voters = 2;
  // Advantages of lonely groups are their rewards, as with a mean of 0 and a
  // standard deviation of 1; else 0.
  bool lonely_is_raw = false;
  // Added to standard deviations, >= 0. A deviation of 0 divides nothing.
  double epsilon = 0.0;
  double clip = std::numeric_limits<double>::infinity();  // of |advantage|
  Whitening whitening = Whitening::kNone;                 // after `clip`

  bool operator==(const GroupBaseline&) const = default;
};

// A floor of variances that whiten, or an addend.
inline constexpr double kWhiteningEpsilon = 1e-8;

// Rows in any order, all spans of one length; the last two may be empty: one
// token each, and all kept.
struct GroupRows {
  std::span<const float> rewards;  // NaN: none; not infinite
  std::span<const int64_t> group_ids;
  std::span<const int64_t> tokens;
  std::span<const int64_t> kept_tokens;  // 0 <= kept <= tokens
};

struct GroupCounts {
  int64_t groups = 0;
  int64_t lonely = 0;
  // Groups without a kept row of an advantage other than 0, before whitening.
  int64_t without_signal = 0;
  int64_t voters = 0;
  int64_t voters_dropped = 0;  // rows with tokens and no vote, by rejection
  int64_t missing_rewards = 0;
};

// Means over rows with a reward; NaN over none.
struct RowMeans {
  double reward;
  double length;  // tokens
};

struct GroupAdvantages {
  std::vector<float> advantages;  // [rows]
  std::vector<float> baselines;   // [rows], before whitening
  GroupCounts counts;
  RowMeans kept;      // rows with a kept token
  RowMeans rejected;  // rows with tokens, none of them kept
};

// The same bits for any order of rows. Takes O(n log n), whatever the groups.
GroupAdvantages AdvantagesOf(const GroupBaseline& baseline,
                             const GroupRows& rows);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_GROUP_BASELINE_H_
