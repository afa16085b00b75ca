// The state that the rules of one examination share.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_EXAMINATION_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_EXAMINATION_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "kernels/batch.h"
#include "kernels/doctor/finding.h"
#include "kernels/doctor/passes.h"
#include "kernels/doctor/row_facts.h"
#include "kernels/doctor/sample.h"

namespace counterweight::kernels::doctor {

// A set of names.
class Names {
 public:
  constexpr Names() = default;
  constexpr Names(std::initializer_list<Name> names) {
    for (const Name name : names) add(name);
  }
  constexpr void add(Name name) {
    bits_ |= uint64_t{1} << static_cast<int>(name);
  }
  constexpr bool has(Name name) const {
    return (bits_ >> static_cast<int>(name) & 1) != 0;
  }
  constexpr bool meets(Names other) const { return (bits_ & other.bits_) != 0; }
  constexpr Names operator|(Names other) const {
    Names both = *this;
    both.bits_ |= other.bits_;
    return both;
  }
  constexpr Names without(Name name) const {
    Names rest = *this;
    rest.bits_ &= ~(uint64_t{1} << static_cast<int>(name));
    return rest;
  }

 private:
  uint64_t bits_ = 0;
};
static_assert(kNumNames <= 64);

// Log-probs up to it are 0 but for rounding.
inline constexpr float kPositive = 1e-3f;

// Faults of one stream or of its place that a repair or a count proves. They
// explain what statistics would see.
inline constexpr Names kRepaired = {Name::kShifted,     Name::kLog10,
                                    Name::kLog2,        Name::kCumulative,
                                    Name::kRowConstant, Name::kProbabilities,
                                    Name::kWrongSign,   Name::kRepeatedValues};

struct Examination {
  Batch batch;
  const int64_t* group_ids = nullptr;
  Streams streams;
  Counts counts = {};
  Sample sample;
  RowFacts rows;
  // Sums of streams 0 and 1, and of 1 and 2.
  double pair[kNumPairSums] = {};
  double later_pair[kNumPairSums] = {};  // up to the repairs' sums
  // Streams that an exact fact names.
  bool is_named[kMostStreams] = {};

  Names found;
  std::vector<Finding> findings;

  int64_t n() const { return sample.tokens; }
  double mean(PairSum sum) const {
    return pair[sum] / static_cast<double>(sample.tokens);
  }
  Stream stream(int index) const;
  // Whether stream 0 is what sampled.
  bool has_rollout() const { return streams.roles[0] == InputRole::kRollout; }
  bool has_third() const { return streams.count == kMostStreams; }
  // Tokens of the batch with a log-prob of that stream above kPositive.
  int64_t CountPositive(int index) const;
  // Streams 0 and 1 have equal bits.
  bool pair_is_equal() const;

  // Adds a finding with the table's severity; `confidence` is cut to [0, 1].
  Finding& Add(Name name, double confidence, Stream of = Stream::kNone);
  // Sets the example: token `index` of the sample.
  void SetExample(int64_t index, Finding* finding) const;
};

// Mean distance of two log-probs, capped at 4.
inline double Capped(double x) { return std::min(std::fabs(x), 4.0); }

// The rules, in the order in which they run.
void ExactRules(Examination* e);
void RepairRules(Examination* e);
void CountRule(Examination* e);  // count_off_by_one
void TailRule(Examination* e);
void PermutedRule(Examination* e);
void UnmatchedRule(Examination* e);
void ZeroRules(Examination* e);
void DuplicateRule(Examination* e);
void StatisticRules(Examination* e);
void CurrentRule(Examination* e);
void AdvantageRules(Examination* e);

}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_EXAMINATION_H_
