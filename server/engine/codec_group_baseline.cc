#include "server/engine/codec_group_baseline.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/group_baseline.h"
#include "server/engine/codec_enums.h"
#include "server/engine/codec_fields.h"
#include "server/engine/codec_group_systems.h"
#include "server/engine/codec_labels.h"
#include "server/engine/names.h"

namespace counterweight::server {
namespace {

using kernels::GroupBaseline;
using kernels::GroupRows;
using kernels::GroupVoters;
using kernels::RewardStd;
using kernels::Whitening;

enum class GroupEstimator : uint8_t { kGrpo, kDrGrpo, kRloo, kReinforcePp };

constexpr EnumPair<GroupEstimator, v1::GroupEstimator> kEstimatorNames[] = {
    {GroupEstimator::kGrpo, v1::GROUP_ESTIMATOR_GRPO, "GRPO"},
    {GroupEstimator::kDrGrpo, v1::GROUP_ESTIMATOR_DR_GRPO, "DR_GRPO"},
    {GroupEstimator::kRloo, v1::GROUP_ESTIMATOR_RLOO, "RLOO"},
    {GroupEstimator::kReinforcePp, v1::GROUP_ESTIMATOR_REINFORCE_PP_BASELINE,
     "REINFORCE_PP_BASELINE"},
};
static_assert(IsWhole(kEstimatorNames, v1::GroupEstimator_ARRAYSIZE,
                      GroupEstimator::kReinforcePp));

constexpr EnumPair<GroupVoters, v1::GroupVoters> kVoterNames[] = {
    {GroupVoters::kAll, v1::GROUP_VOTERS_ALL, "ALL"},
    {GroupVoters::kKept, v1::GROUP_VOTERS_KEPT_ROWS, "KEPT_ROWS"},
    {GroupVoters::kFullyKept, v1::GROUP_VOTERS_FULLY_KEPT_ROWS,
     "FULLY_KEPT_ROWS"},
};
static_assert(IsWhole(kVoterNames, v1::GroupVoters_ARRAYSIZE,
                      GroupVoters::kFullyKept));

constexpr EnumPair<bool, v1::LonelyGroup> kLonelyNames[] = {
    {false, v1::LONELY_GROUP_ZERO, "ZERO"},
    {true, v1::LONELY_GROUP_RAW, "RAW"},
};
static_assert(IsWhole(kLonelyNames, v1::LonelyGroup_ARRAYSIZE, true));

constexpr EnumPair<RewardStd, v1::RewardStd> kStdNames[] = {
    {RewardStd::kNone, v1::REWARD_STD_NONE, "NONE"},
    {RewardStd::kGroup, v1::REWARD_STD_GROUP, "GROUP"},
    {RewardStd::kBatch, v1::REWARD_STD_BATCH, "BATCH"},
    {RewardStd::kOthers, v1::REWARD_STD_OTHERS, "OTHERS"},
};
static_assert(IsWhole(kStdNames, v1::RewardStd_ARRAYSIZE, RewardStd::kOthers));

constexpr EnumPair<Whitening, v1::Whitening> kWhiteningNames[] = {
    {Whitening::kNone, v1::WHITENING_NONE, "NONE"},
    {Whitening::kSample, v1::WHITENING_SAMPLE, "SAMPLE"},
    {Whitening::kPopulation, v1::WHITENING_POPULATION, "POPULATION"},
};
static_assert(IsWhole(kWhiteningNames, v1::Whitening_ARRAYSIZE,
                      Whitening::kPopulation));

class BaselineReader {
 public:
  BaselineReader(const v1::GroupBaseline& wire, Violations* violations)
      : wire_(wire), fields_("baseline.", violations) {}

  GroupBaseline Read() {
    GroupBaseline baseline;
    const GroupEstimator estimator =
        fields_.Required(kEstimatorNames, wire_.estimator(), "estimator",
                         GroupEstimator::kDrGrpo);
    baseline.leaves_one_out = estimator == GroupEstimator::kRloo;
    baseline.voters =
        Choice(kVoterNames, wire_.voters(), "voters", GroupVoters::kKept);
    baseline.lonely_is_raw =
        Choice(kLonelyNames, wire_.lonely(), "lonely", false);
    baseline.std =
        Choice(kStdNames, wire_.std(), "std",
               estimator == GroupEstimator::kGrpo ? RewardStd::kGroup
                                                  : RewardStd::kNone);
    baseline.whitening =
        Choice(kWhiteningNames, wire_.whitening(), "whitening",
               estimator == GroupEstimator::kReinforcePp ? Whitening::kSample
                                                         : Whitening::kNone);
    baseline.epsilon = Epsilon(baseline.std != RewardStd::kNone);
    if (wire_.has_clip()) {
      baseline.clip = wire_.clip();
      if (!(baseline.clip > 0.0) || std::isinf(baseline.clip)) {
        fields_.Fail("clip", "must be finite and > 0; leave it out for none");
      }
    }
    baseline.fewest_voters = FewestVoters(baseline);
    return baseline;
  }

  // The settings of the system, which are all of them.
  const GroupSystem* ReadSystem() {
    RefuseBeside(wire_.estimator() != 0, "estimator");
    RefuseBeside(wire_.voters() != 0, "voters");
    RefuseBeside(wire_.has_fewest_voters(), "fewest_voters");
    RefuseBeside(wire_.lonely() != 0, "lonely");
    RefuseBeside(wire_.std() != 0, "std");
    RefuseBeside(wire_.has_epsilon(), "epsilon");
    RefuseBeside(wire_.whitening() != 0, "whitening");
    RefuseBeside(wire_.has_clip(), "clip");
    std::vector<std::string_view> names;
    for (const GroupSystem& system : GroupSystems()) {
      if (system.name == wire_.system()) return &system;
      names.push_back(system.name);
    }
    fields_.Fail("system", Concat(Quote(wire_.system()), " is unknown. ",
                                  DidYouMean(wire_.system(), names),
                                  "There are: ", JoinNames(names)));
    return nullptr;
  }

 private:
  void RefuseBeside(bool is_set, const std::string& field) {
    if (is_set) {
      fields_.Fail(field, "is one of the settings that system has; drop one");
    }
  }

  template <class Table, class Wire, class Kernel>
  Kernel Choice(const Table& table, Wire wire, const std::string& field,
                Kernel absent) {
    return wire == Wire{} ? absent : fields_.Optional(table, wire, field);
  }

  double Epsilon(bool divides) {
    if (!wire_.has_epsilon()) {
      if (divides) {
        fields_.Fail("epsilon",
                     "is required where std divides: verl, SkyRL, slime and "
                     "NeMo-RL have 1e-6, TRL 1e-4, OpenRLHF 1e-9");
      }
      return 0.0;
    }
    if (!divides) {
      fields_.Fail("epsilon", "is not read: std is NONE; leave it out");
    } else if (!(wire_.epsilon() >= 0.0) || std::isinf(wire_.epsilon())) {
      fields_.Fail("epsilon", "must be finite and >= 0");
    }
    return wire_.epsilon();
  }

  int64_t FewestVoters(const GroupBaseline& baseline) {
    if (!wire_.has_fewest_voters()) return baseline.fewest_voters;
    const bool needs_two = baseline.leaves_one_out ||
                           baseline.std == RewardStd::kGroup ||
                           baseline.std == RewardStd::kOthers;
    if (wire_.fewest_voters() < (needs_two ? 2 : 1)) {
      fields_.Fail("fewest_voters",
                   needs_two ? "must be >= 2: the mean of the others and a "
                               "group's standard deviation need two"
                             : "must be >= 1");
    }
    return wire_.fewest_voters();
  }

  const v1::GroupBaseline& wire_;
  FieldReader fields_;
};

template <class Numbers>
auto SpanOf(const Numbers& numbers) {
  return std::span(numbers.data(), static_cast<size_t>(numbers.size()));
}

class RowsReader {
 public:
  RowsReader(const v1::GroupAdvantagesRequest& request, Violations* violations)
      : request_(request), violations_(*violations) {}

  void Check() {
    const int rows = request_.rewards_size();
    if (rows == 0) Fail("rewards", "is required: the reward of each row");
    CheckSize("group_ids", request_.group_ids_size(), /*is_optional=*/false);
    CheckSize("tokens", request_.tokens_size(), /*is_optional=*/true);
    CheckSize("kept_tokens", request_.kept_tokens_size(), /*is_optional=*/true);
    if (!violations_.empty()) return;
    for (int row = 0; row < rows; ++row) CheckRow(row);
  }

 private:
  void Fail(std::string field, std::string description) {
    violations_.push_back({std::move(field), std::move(description)});
  }

  void CheckSize(const std::string& field, int size, bool is_optional) {
    const int rows = request_.rewards_size();
    if (size == rows || (is_optional && size == 0)) return;
    Fail(field, Concat("has ", size, " rows, rewards ", rows));
  }

  void CheckRow(int row) {
    if (std::isinf(request_.rewards(row))) {
      Fail(Concat("rewards[", row, "]"),
           "must not be infinite; NaN is a row without a reward");
    }
    int64_t most = INT32_MAX;
    if (request_.tokens_size() > 0) {
      most = request_.tokens(row);
      // Their sums are exact.
      if (most < 0 || most > INT32_MAX) {
        Fail(Concat("tokens[", row, "]"), "must be from 0 to 2^31 - 1");
        return;
      }
    }
    if (request_.kept_tokens_size() == 0) return;
    const int64_t kept = request_.kept_tokens(row);
    if (kept < 0 || kept > most) {
      Fail(Concat("kept_tokens[", row, "]"),
           request_.tokens_size() > 0
               ? Concat("must be from 0 to the row's tokens, ", most)
               : std::string("must be from 0 to 2^31 - 1"));
    }
  }

  const v1::GroupAdvantagesRequest& request_;
  Violations& violations_;
};

bool AreRagged(std::span<const int64_t> group_ids) {
  std::vector<int64_t> ids(group_ids.begin(), group_ids.end());
  std::sort(ids.begin(), ids.end());
  const auto size_of_group = [&](auto begin) {
    return std::upper_bound(begin, ids.end(), *begin) - begin;
  };
  const auto first = size_of_group(ids.begin());
  for (auto begin = ids.begin(); begin != ids.end(); begin += first) {
    if (size_of_group(begin) != first) return true;
  }
  return false;
}

// As many as are kept, or one.
std::vector<int64_t> TokensOf(std::span<const int64_t> kept_tokens) {
  std::vector<int64_t> tokens;
  tokens.reserve(kept_tokens.size());
  for (const int64_t kept : kept_tokens) {
    tokens.push_back(std::max<int64_t>(kept, 1));
  }
  return tokens;
}

void Encode(const kernels::GroupAdvantages& made, bool has_lengths,
            v1::GroupAdvantagesResponse* response) {
  response->mutable_advantages()->Add(made.advantages.begin(),
                                      made.advantages.end());
  response->mutable_baselines()->Add(made.baselines.begin(),
                                     made.baselines.end());
  const kernels::GroupCounts& counts = made.counts;
  auto& metrics = *response->mutable_metrics();
  const auto add = [&](const char* name, int64_t count) {
    metrics[name] = static_cast<double>(count);
  };
  add("groups", counts.groups);
  add("lonely_groups", counts.lonely);
  add("groups_without_signal", counts.without_signal);
  add("voters", counts.voters);
  add("voters_dropped", counts.voters_dropped);
  add("missing_rewards", counts.missing_rewards);
  metrics["kept_reward_mean"] = made.kept.reward;
  metrics["rejected_reward_mean"] = made.rejected.reward;
  metrics["reward_bias"] = made.rejected.reward - made.kept.reward;
  if (has_lengths) {
    metrics["kept_length_mean"] = made.kept.length;
    metrics["rejected_length_mean"] = made.rejected.length;
    metrics["length_bias"] = made.rejected.length - made.kept.length;
  }
  if (2 * counts.without_signal > counts.groups) {
    response->add_warnings(
        Concat(counts.without_signal, " of ", counts.groups,
               " groups have no signal: the advantages of their kept rows are "
               "0. ",
               counts.lonely, " of them have too few voters"));
  }
  if (counts.missing_rewards > 0) {
    response->add_warnings(
        Concat(counts.missing_rewards,
               " rows have no reward (NaN): they do not vote, and have the "
               "advantage 0"));
  }
}

}  // namespace

Violations GroupAdvantages(const v1::GroupAdvantagesRequest& request,
                           v1::GroupAdvantagesResponse* response) {
  Violations violations;
  CheckLabels(request.request_id(), {}, &violations);
  GroupBaseline baseline;
  bool merges_ragged = false;
  BaselineReader reader(request.baseline(), &violations);
  if (request.baseline().system().empty()) {
    baseline = reader.Read();
  } else if (const GroupSystem* const system = reader.ReadSystem()) {
    baseline = system->baseline;
    merges_ragged = system->merges_ragged;
  }
  RowsReader(request, &violations).Check();
  if (baseline.voters == GroupVoters::kFullyKept &&
      request.tokens_size() == 0 && request.kept_tokens_size() > 0) {
    violations.push_back(
        {"tokens",
         "is required: FULLY_KEPT_ROWS compares kept_tokens with it"});
  }
  if (!violations.empty()) return violations;
  GroupRows rows{.rewards = SpanOf(request.rewards()),
                 .group_ids = SpanOf(request.group_ids()),
                 .tokens = SpanOf(request.tokens()),
                 .kept_tokens = SpanOf(request.kept_tokens())};
  std::vector<int64_t> one_group;
  if (merges_ragged && AreRagged(rows.group_ids)) {
    one_group.resize(rows.group_ids.size());
    rows.group_ids = one_group;
    response->add_warnings(
        "groups have different sizes: slime takes all rows of the step for one "
        "group then, and so did this answer");
  }
  response->set_request_id(request.request_id());
  const bool has_tokens = request.tokens_size() > 0;
  std::vector<int64_t> tokens;
  if (!has_tokens) {
    tokens = TokensOf(rows.kept_tokens);
    rows.tokens = tokens;
  }
  Encode(kernels::AdvantagesOf(baseline, rows), has_tokens, response);
  return violations;
}

}  // namespace counterweight::server
