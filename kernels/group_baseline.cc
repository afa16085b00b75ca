#include "kernels/group_baseline.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/averages.h"
#include "kernels/math/exact_sum.h"

namespace counterweight::kernels {
namespace {

// Moments of voters' rewards: the sum, and that of squared deviations from the
// mean.
struct Moments {
  int64_t n = 0;
  double sum = 0.0;
  double squares = 0.0;

  double mean() const { return sum / static_cast<double>(n); }
};

double StdOf(double squares, int64_t n) {
  return n > 1 ? std::sqrt(squares / static_cast<double>(n - 1)) : 0.0;
}

double Square(double x) { return x * x; }

class Baselines {
 public:
  Baselines(const GroupBaseline& baseline, const GroupRows& rows)
      : baseline_(baseline),
        rows_(rows),
        batch_std_(DeviatesByBatch() ? StdOfBatch() : 0.0),
        advantages_(rows.rewards.size()) {
    made_.advantages.resize(rows.rewards.size());
    made_.baselines.resize(rows.rewards.size());
  }

  GroupAdvantages Make() && {
    std::vector<size_t> order(rows_.rewards.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return rows_.group_ids[a] < rows_.group_ids[b];
    });
    for (auto begin = order.begin(); begin != order.end();) {
      const int64_t id = rows_.group_ids[*begin];
      const auto end = std::find_if(begin, order.end(), [&](size_t row) {
        return rows_.group_ids[row] != id;
      });
      AddGroup({begin, end});
      begin = end;
    }
    CountRows();
    if (baseline_.whitening != Whitening::kNone) Whiten();
    std::transform(
        advantages_.begin(), advantages_.end(), made_.advantages.begin(),
        [](double advantage) { return static_cast<float>(advantage); });
    return std::move(made_);
  }

 private:
  using Group = std::span<const size_t>;

  int64_t Tokens(size_t row) const {
    return rows_.tokens.empty() ? 1 : rows_.tokens[row];
  }
  int64_t Kept(size_t row) const {
    return rows_.kept_tokens.empty() ? Tokens(row) : rows_.kept_tokens[row];
  }
  bool HasReward(size_t row) const { return !std::isnan(rows_.rewards[row]); }
  bool Votes(size_t row) const {
    if (!HasReward(row)) return false;
    switch (baseline_.voters) {
      case GroupVoters::kKept:
        return Kept(row) > 0;
      case GroupVoters::kFullyKept:
        return Kept(row) > 0 && Kept(row) == Tokens(row);
      case GroupVoters::kAll:
        break;
    }
    return true;
  }
  // Whether a row's advantage is the formula's; else it is 0.
  bool HasAdvantage(size_t row) const {
    return HasReward(row) &&
           (Kept(row) > 0 || baseline_.voters == GroupVoters::kAll);
  }
  bool DeviatesByBatch() const { return baseline_.std == RewardStd::kBatch; }
  bool DeviatesByGroup() const {
    return baseline_.std == RewardStd::kGroup ||
           baseline_.std == RewardStd::kOthers;
  }

  // Moments of the voters among the rows, but for `left_out`.
  template <class Rows>
  Moments MomentsOf(const Rows& rows, size_t left_out = SIZE_MAX) const {
    const auto votes = [&](size_t row) {
      return row != left_out && Votes(row);
    };
    Moments moments;
    ExactSum sum;
    for (const size_t row : rows) {
      if (!votes(row)) continue;
      ++moments.n;
      sum.add(rows_.rewards[row]);
    }
    if (moments.n == 0) return moments;
    moments.sum = sum.sum();
    const double mean = moments.mean();
    ExactSum squares;
    for (const size_t row : rows) {
      if (votes(row)) squares.add(Square(rows_.rewards[row] - mean));
    }
    moments.squares = squares.sum();
    return moments;
  }

  double StdOfBatch() const {
    std::vector<size_t> all(rows_.rewards.size());
    std::iota(all.begin(), all.end(), size_t{0});
    const Moments moments = MomentsOf(all);
    return StdOf(moments.squares, moments.n);
  }

  void AddGroup(Group group) {
    const Moments moments = MomentsOf(group);
    const bool needs_two = baseline_.leaves_one_out || DeviatesByGroup();
    const bool is_lonely =
        moments.n <
        std::max<int64_t>(baseline_.fewest_voters, needs_two ? 2 : 1);
    bool has_signal = false;
    for (const size_t row : group) {
      if (!HasAdvantage(row)) continue;
      const double advantage =
          is_lonely ? Lonely(row) : AdvantageOf(row, group, moments);
      advantages_[row] = std::clamp(advantage, -baseline_.clip, baseline_.clip);
      if (Kept(row) > 0 && advantages_[row] != 0.0) has_signal = true;
    }
    GroupCounts& counts = made_.counts;
    ++counts.groups;
    if (is_lonely) ++counts.lonely;
    if (!has_signal) ++counts.without_signal;
    counts.voters += moments.n;
  }

  double Lonely(size_t row) const {
    if (!baseline_.lonely_is_raw) return 0.0;
    return Divided(rows_.rewards[row], DeviatesByGroup() ? 1.0 : batch_std_);
  }

  double AdvantageOf(size_t row, Group group, const Moments& moments) {
    const bool is_other = baseline_.leaves_one_out && Votes(row);
    const double reward = rows_.rewards[row];
    const double mean =
        is_other ? (moments.sum - reward) / static_cast<double>(moments.n - 1)
                 : moments.mean();
    made_.baselines[row] = static_cast<float>(mean);
    return Divided(reward - mean, StdFor(row, group, moments));
  }

  double StdFor(size_t row, Group group, const Moments& moments) const {
    switch (baseline_.std) {
      case RewardStd::kNone:
        break;
      case RewardStd::kGroup:
        return StdOf(moments.squares, moments.n);
      case RewardStd::kBatch:
        return batch_std_;
      case RewardStd::kOthers:
        if (Votes(row)) return StdOfOthers(row, group, moments);
        return StdOf(moments.squares, moments.n);
    }
    return 0.0;
  }

  double StdOfOthers(size_t row, Group group, const Moments& moments) const {
    if (moments.squares == 0.0) return 0.0;
    const auto n = static_cast<double>(moments.n);
    const double own =
        Square(rows_.rewards[row] - moments.mean()) * n / (n - 1.0);
    const double squares = moments.squares - own;
    // A row that has nearly all of the squares is the only one, and leaves
    // rounding errors.
    if (squares > 1e-3 * moments.squares) return StdOf(squares, moments.n - 1);
    const Moments others = MomentsOf(group, row);
    return StdOf(others.squares, others.n);
  }

  double Divided(double difference, double deviation) const {
    if (baseline_.std == RewardStd::kNone || deviation == 0.0)
      return difference;
    return difference / (deviation + baseline_.epsilon);
  }

  void CountRows() {
    struct Sums {
      ExactSum reward, length;
      int64_t n = 0;
    } sums[2];
    for (size_t row = 0; row < rows_.rewards.size(); ++row) {
      GroupCounts& counts = made_.counts;
      if (!HasReward(row)) {
        ++counts.missing_rewards;
        continue;
      }
      if (Tokens(row) == 0) continue;
      if (!Votes(row)) ++counts.voters_dropped;
      Sums& sum = sums[Kept(row) > 0 ? 0 : 1];
      ++sum.n;
      sum.reward.add(rows_.rewards[row]);
      sum.length.add(static_cast<double>(Tokens(row)));
    }
    const auto means = [](const Sums& sum) {
      return RowMeans{.reward = Mean(sum.reward.sum(), sum.n),
                      .length = Mean(sum.length.sum(), sum.n)};
    };
    made_.kept = means(sums[0]);
    made_.rejected = means(sums[1]);
  }

  void Whiten() {
    ExactSum sum;
    int64_t n = 0;
    for (size_t row = 0; row < advantages_.size(); ++row) {
      const int64_t kept = HasReward(row) ? Kept(row) : 0;
      n += kept;
      sum.add(static_cast<double>(kept) * advantages_[row]);
    }
    if (n == 0) return;
    const double mean = sum.sum() / static_cast<double>(n);
    ExactSum squares;
    for (size_t row = 0; row < advantages_.size(); ++row) {
      const int64_t kept = HasReward(row) ? Kept(row) : 0;
      squares.add(static_cast<double>(kept) * Square(advantages_[row] - mean));
    }
    const double deviation = WhiteningStd(squares.sum(), n);
    for (size_t row = 0; row < advantages_.size(); ++row) {
      if (HasReward(row) && Kept(row) > 0) {
        advantages_[row] = (advantages_[row] - mean) / deviation;
      }
    }
  }

  double WhiteningStd(double squares, int64_t n) const {
    if (baseline_.whitening == Whitening::kPopulation) {
      return std::sqrt(std::max(Mean(squares, n), kWhiteningEpsilon));
    }
    const double variance = n > 1 ? Mean(squares, n - 1) : 0.0;
    return std::sqrt(variance + kWhiteningEpsilon);
  }

  const GroupBaseline& baseline_;
  const GroupRows& rows_;
  const double batch_std_;
  std::vector<double> advantages_;  // [rows]
  GroupAdvantages made_;
};

}  // namespace

GroupAdvantages AdvantagesOf(const GroupBaseline& baseline,
                             const GroupRows& rows) {
  return Baselines(baseline, rows).Make();
}

}  // namespace counterweight::kernels
