#include "server/engine/codec_counts.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "kernels/surrogates/list.h"
#include "server/engine/names.h"

namespace counterweight::server {
namespace {

using kernels::BatchCount;
using kernels::CorrectionSpec;
using kernels::LossReduction;
using kernels::RowCount;
using kernels::Surrogate;

// Why a method without a loss refuses what only losses read.
std::string NotRead(const CountsUse& use) {
  return use.omits_loss
             ? "is of the loss, which omit_loss leaves out; drop one of them"
             : "is not read by this method; leave it out";
}

bool Drops(const CorrectionSpec& spec) {
  return std::any_of(spec.rules, spec.rules + spec.num_rules,
                     [](const kernels::RejectionRule& rule) {
                       return rule.effect == kernels::Effect::kDrop;
                     });
}

class CountsReader {
 public:
  CountsReader(const v1::GlobalCounts& counts, const CountsUse& use,
               CorrectionSpec* spec, Violations* violations)
      : counts_(counts), use_(use), spec_(*spec), violations_(*violations) {}

  void Read() {
    const size_t before = violations_.size();
    CheckRanges();
    if (violations_.size() > before) return;
    if (has_loss_) {
      ReadLoss();
    } else if (!spec_.weight.normalize) {
      Fail("", NotRead(use_));
    } else if (!has_mean_) {
      Fail("weight_sum",
           "is required: the method reads the step's mean weight");
    }
    ReadMean();
    if (violations_.size() == before) RefuseUnread();
  }

 private:
  void Fail(std::string_view field, std::string_view reason) {
    violations_.push_back({field.empty() ? std::string("global_counts")
                                         : Concat("global_counts.", field),
                           std::string(reason)});
  }

  void CheckRanges() {
    const auto check = [&](bool has, int64_t count, int64_t least,
                           std::string_view field) {
      if (has && count < least) Fail(field, Concat("must be >= ", least));
    };
    check(counts_.has_num_tokens(), counts_.num_tokens(), 0, "num_tokens");
    check(counts_.has_num_sequences(), counts_.num_sequences(), 0,
          "num_sequences");
    check(counts_.has_num_kept_tokens(), counts_.num_kept_tokens(), 0,
          "num_kept_tokens");
    check(counts_.has_num_kept_sequences(), counts_.num_kept_sequences(), 0,
          "num_kept_sequences");
    check(counts_.has_num_ranks(), counts_.num_ranks(), 1, "num_ranks");
    if (counts_.has_weight_sum() &&
        !(counts_.weight_sum() >= 0.0 && std::isfinite(counts_.weight_sum()))) {
      Fail("weight_sum", "must be a finite number >= 0");
    }
    if (counts_.has_weight_mean() && !(counts_.weight_mean() > 0.0 &&
                                       std::isfinite(counts_.weight_mean()))) {
      Fail("weight_mean", "must be a finite number > 0");
    }
    if (counts_.has_weight_mean() && counts_.has_weight_sum()) {
      Fail("weight_mean", "and weight_sum say the same; give one of them");
    }
    if (!v1::SelectionScope_IsValid(counts_.selection_scope())) {
      Fail("selection_scope", "must be CALL");
    }
  }

  void ReadLoss() {
    if (!use_.refusal.empty()) {
      Fail("", use_.refusal);
      return;
    }
    if (!use_.given_count.empty()) {
      Fail("", Concat("and ", use_.given_count,
                      " are counts of the same step; give one of them"));
      return;
    }
    if (!use_.given_ranks.empty() && counts_.has_num_ranks()) {
      Fail("num_ranks",
           Concat("and ", use_.given_ranks, " say the same; give one of them"));
    }
    if (selects_ &&
        counts_.selection_scope() == v1::SELECTION_SCOPE_UNSPECIFIED) {
      Fail("selection_scope",
           "is required: this loss selects tokens among those of one request, "
           "so the ranks' answers do not add up to the whole batch's; CALL "
           "accepts that");
    }
    if (!use_.width_field.empty()) {
      violations_.push_back(
          {use_.width_field,
           "is required beside global_counts: without it each request divides "
           "by its own padded width"});
    }
    Reduce(&spec_.loss.reduction);
    if (spec_.loss.kl.estimator != kernels::KlEstimator::kNone) {
      Reduce(&spec_.loss.kl.reduction);
    }
    if (spec_.weight.normalize && spec_.loss.applies_weight && !has_mean_) {
      Fail("weight_sum",
           "is required: the weight is normalized, and without it each request "
           "divides by the mean of its own weights");
    }
  }

  // Divides by the step's count instead of the batch's.
  void Reduce(LossReduction* reduction) {
    const std::optional<double> count = CountFor(reduction->count);
    if (!count) return;
    if (counts_.has_num_ranks()) {
      reduction->scale *= static_cast<double>(counts_.num_ranks());
    }
    reduction->scale = *count > 0.0 ? reduction->scale / *count : 0.0;
    reduction->count = BatchCount::kOne;
  }

  // Nothing if there is none; 1 for sums.
  std::optional<double> CountFor(BatchCount count) {
    const bool all_are_kept = use_.is_dialect && !Drops(spec_);
    switch (count) {
      case BatchCount::kOne:
        if (!counts_.has_num_ranks()) {
          Fail("",
               "is not read by a sum of tokens, except for num_ranks; leave "
               "it out");
        }
        return 1.0;
      case BatchCount::kRowTokens:
      case BatchCount::kTokens:
        return use_.is_global && counts_.has_num_kept_tokens() ? KeptTokens()
                                                               : Tokens();
      case BatchCount::kKeptTokens:
        return all_are_kept && !counts_.has_num_kept_tokens() ? Tokens()
                                                              : KeptTokens();
      case BatchCount::kRows:
        counts_empty_sequences_ = true;
        return Sequences();
      case BatchCount::kNonemptyRows:
        return use_.is_global && counts_.has_num_kept_sequences()
                   ? KeptSequences()
                   : Sequences();
      case BatchCount::kKeptRows:
        return all_are_kept && !counts_.has_num_kept_sequences()
                   ? Sequences()
                   : KeptSequences();
      case BatchCount::kGroups:
        Fail("",
             "is not read by a mean over groups: all sequences of a group, and "
             "all groups of the step, must be in one request");
        return std::nullopt;
    }
    return std::nullopt;
  }

  std::optional<double> Tokens() {
    reads_counts_ = true;
    return Count(counts_.has_num_tokens(), counts_.num_tokens(), "num_tokens",
                 "tokens");
  }
  std::optional<double> Sequences() {
    reads_counts_ = true;
    return Count(counts_.has_num_sequences(), counts_.num_sequences(),
                 "num_sequences", "sequences");
  }
  std::optional<double> KeptTokens() {
    reads_kept_tokens_ = true;
    return Count(counts_.has_num_kept_tokens(), counts_.num_kept_tokens(),
                 "num_kept_tokens", "kept tokens");
  }
  std::optional<double> KeptSequences() {
    reads_kept_sequences_ = true;
    return Count(counts_.has_num_kept_sequences(), counts_.num_kept_sequences(),
                 "num_kept_sequences", "sequences with a kept token");
  }
  std::optional<double> Count(bool has, int64_t count, std::string_view field,
                              std::string_view what) {
    if (has) return static_cast<double>(count);
    Fail(field,
         Concat("is required: the loss divides by the number of ", what));
    return std::nullopt;
  }

  void ReadMean() {
    if (!has_mean_) return;
    if (!spec_.weight.normalize) {
      Fail(counts_.has_weight_sum() ? "weight_sum" : "weight_mean",
           "is read only where the weight is normalized");
      return;
    }
    if (counts_.has_weight_mean()) {
      spec_.weight.given_mean = counts_.weight_mean();
      return;
    }
    reads_counts_ = true;
    const bool by_row = kernels::IsSequenceLevel(spec_.weight.level);
    const bool has =
        by_row ? counts_.has_num_sequences() : counts_.has_num_tokens();
    if (!has) {
      Fail(by_row ? "num_sequences" : "num_tokens",
           "is required beside weight_sum");
      return;
    }
    const int64_t count =
        by_row ? counts_.num_sequences() : counts_.num_tokens();
    // Without weight there is nothing to divide: the batch's own mean is 0 too.
    spec_.weight.given_mean =
        count > 0 ? counts_.weight_sum() / static_cast<double>(count) : 0.0;
  }

  // Refuses what no part of the method reads. Counts of tokens and sequences
  // describe the step and are compared with the batch, so one that the method
  // does not divide by may be sent beside one that it does.
  void RefuseUnread() {
    const auto refuse = [&](bool unread, std::string_view field,
                            std::string_view reason) {
      if (unread) Fail(field, Concat(reason, "; leave it out"));
    };
    refuse(counts_.has_num_ranks() && !has_loss_, "num_ranks",
           "is read by losses only");
    refuse(counts_.has_num_kept_tokens() && !reads_kept_tokens_,
           "num_kept_tokens",
           "is not read: only a mean over kept tokens divides by it");
    refuse(counts_.has_num_kept_sequences() && !reads_kept_sequences_,
           "num_kept_sequences",
           "is not read: only a mean over kept sequences divides by it");
    refuse(counts_.selection_scope() != v1::SELECTION_SCOPE_UNSPECIFIED &&
               !selects_,
           "selection_scope",
           "is for losses that select tokens (KL_COV, CLIP_COV)");
    const bool reads_some =
        reads_counts_ || reads_kept_tokens_ || reads_kept_sequences_;
    refuse(counts_.has_num_tokens() && !reads_some, "num_tokens",
           "is not read by a sum of tokens");
    refuse(counts_.has_num_sequences() && !reads_some, "num_sequences",
           "is not read by a sum of tokens");
  }

 public:
  StatedCounts stated() const {
    StatedCounts stated;
    if (counts_.has_num_tokens()) stated.tokens = counts_.num_tokens();
    if (counts_.has_num_sequences()) {
      stated.sequences = counts_.num_sequences();
    }
    if (counts_.has_num_kept_tokens()) {
      stated.kept_tokens = counts_.num_kept_tokens();
    }
    if (counts_.has_num_kept_sequences()) {
      stated.kept_sequences = counts_.num_kept_sequences();
    }
    stated.counts_empty_sequences = counts_empty_sequences_;
    return stated;
  }

 private:
  const v1::GlobalCounts& counts_;
  const CountsUse& use_;
  CorrectionSpec& spec_;
  Violations& violations_;
  const bool has_loss_ = spec_.loss.surrogate != Surrogate::kNone;
  const bool selects_ =
      has_loss_ &&
      kernels::InfoOf(spec_.loss.surrogate).Has(kernels::kTraitSelection);
  const bool has_mean_ = counts_.has_weight_sum() || counts_.has_weight_mean();
  bool reads_counts_ = false;
  bool reads_kept_tokens_ = false;
  bool reads_kept_sequences_ = false;
  bool counts_empty_sequences_ = false;
};

}  // namespace

CountsUse CountsUseOf(const v1::PolicyLoss& loss, const std::string& prefix) {
  CountsUse use;
  use.is_global = loss.denominator() == v1::LOSS_DENOMINATOR_GLOBAL;
  if (loss.aggregation() == v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM_NORM &&
      !loss.has_norm_length()) {
    use.width_field = prefix + "policy_loss.norm_length";
  }
  return use;
}

Result<StatedCounts> ApplyCounts(const v1::CorrectRequest& request,
                                 const CountsUse& use, CorrectionSpec* spec) {
  Result<StatedCounts> result;
  if (!request.has_global_counts()) return result;
  CountsReader reader(request.global_counts(), use, spec, &result.violations);
  reader.Read();
  result.value = reader.stated();
  return result;
}

Result<std::vector<double>> ApplyRowDivisors(const v1::CorrectRequest& request,
                                             const CountsUse& use,
                                             int64_t num_sequences,
                                             CorrectionSpec* spec) {
  constexpr char kField[] = "row_divisors";
  Result<std::vector<double>> result;
  const auto& divisors = request.row_divisors();
  if (divisors.empty()) return result;
  LossReduction& reduction = spec->loss.reduction;
  const auto refuse = [&](std::string reason) {
    result.violations.push_back({kField, std::move(reason)});
    return result;
  };
  if (spec->loss.surrogate == Surrogate::kNone) {
    return refuse(NotRead(use));
  }
  if (use.is_dialect) {
    return refuse(use.divisors_field.empty()
                      ? "is not read by a dialect, whose system has none"
                      : Concat("is not read by this dialect; ",
                               use.divisors_field, " has them"));
  }
  const bool divides_rows = reduction.row == RowCount::kTokens ||
                            reduction.row == RowCount::kKeptTokens;
  if (!divides_rows ||
      kernels::InfoOf(spec->loss.surrogate).Has(kernels::kTraitRowRatio)) {
    return refuse(
        "is read by losses that divide each sequence's sum by its tokens "
        "(SEQ_MEAN_TOKEN_MEAN, but not GEO_MEAN); leave it out");
  }
  if (divisors.size() != num_sequences) {
    return refuse("must have one entry per sequence");
  }
  for (int i = 0; i < divisors.size(); ++i) {
    if (divisors[i] > 0.0 && std::isfinite(divisors[i])) continue;
    result.violations.push_back(
        {Concat(kField, "[", i, "]"), "must be a finite number > 0"});
    return result;
  }
  reduction.row = RowCount::kGiven;
  spec->loss.kl.reduction = reduction;
  result.value.assign(divisors.begin(), divisors.end());
  return result;
}

Violations CheckStated(const StatedCounts& stated,
                       const kernels::BatchSums& sums) {
  Violations violations;
  const auto check = [&](const std::optional<int64_t>& count, int64_t own,
                         std::string_view field, std::string_view what) {
    if (!count || *count >= own) return;
    violations.push_back(
        {Concat("global_counts.", field),
         Concat("is ", *count, ", but this request alone has ", own, " ", what,
                ": it must count those of the whole step")});
  };
  check(stated.tokens, sums.tokens, "num_tokens", "tokens");
  check(stated.sequences,
        stated.counts_empty_sequences ? sums.num_sequences
                                      : sums.nonempty_sequences,
        "num_sequences", "sequences");
  check(stated.kept_tokens, sums.kept_tokens, "num_kept_tokens", "kept tokens");
  check(stated.kept_sequences, sums.kept_sequences, "num_kept_sequences",
        "sequences with a kept token");
  return violations;
}

}  // namespace counterweight::server
