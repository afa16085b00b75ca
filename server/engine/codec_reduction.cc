#include "server/engine/codec_reduction.h"

#include <cmath>
#include <utility>

namespace counterweight::server {
namespace {

using kernels::BatchCount;
using kernels::RowCount;

class ReductionDecoder {
 public:
  ReductionDecoder(const LossFacts& facts, std::string prefix,
                   Violations* violations)
      : facts_(facts), prefix_(std::move(prefix)), violations_(violations) {}

  kernels::LossReduction Decode(const v1::PolicyLoss& loss) {
    kernels::LossReduction reduction;
    const bool kept = loss.denominator() == v1::LOSS_DENOMINATOR_KEPT;
    const bool global = loss.denominator() == v1::LOSS_DENOMINATOR_GLOBAL;
    const bool sum = loss.aggregation() == v1::LOSS_AGGREGATION_TOKEN_SUM;
    if (!kept && !global && !sum &&
        loss.denominator() != v1::LOSS_DENOMINATOR_ORIGINAL) {
      Fail("policy_loss.denominator", "is required: ORIGINAL, KEPT or GLOBAL");
      return {};
    }
    if (global && facts_.global_counts == nullptr) {
      violations_->push_back(
          {"global_counts", "is required by policy_loss.denominator GLOBAL"});
      return {};
    }
    const v1::GlobalCounts& counts =
        global ? *facts_.global_counts : v1::GlobalCounts::default_instance();
    double ranks = 1.0;
    if (global && counts.has_num_ranks()) {
      ranks = static_cast<double>(counts.num_ranks());
    }
    const auto rows = [&] {
      if (!global) {
        reduction.count =
            kept ? BatchCount::kKeptRows : BatchCount::kNonemptyRows;
        return;
      }
      reduction.count = BatchCount::kOne;
      reduction.scale /= GlobalCount(counts.has_num_sequences(),
                                     counts.num_sequences(), "num_sequences");
    };
    reduction.scale = ranks;
    switch (static_cast<int>(loss.aggregation())) {
      case v1::LOSS_AGGREGATION_TOKEN_MEAN:
        reduction.count = kept ? BatchCount::kKeptTokens : BatchCount::kTokens;
        if (global) {
          reduction.count = BatchCount::kOne;
          reduction.scale /= GlobalTokens(counts);
        }
        break;
      case v1::LOSS_AGGREGATION_TOKEN_SUM:
        reduction.count = BatchCount::kOne;
        break;
      case v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM:
        rows();
        break;
      case v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_MEAN:
        rows();
        reduction.row = kept ? RowCount::kKeptTokens : RowCount::kTokens;
        break;
      case v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM_NORM:
        reduction.scale /= NormLength(loss);
        rows();
        break;
      default:
        Fail("policy_loss.aggregation",
             "is required: TOKEN_MEAN, TOKEN_SUM, SEQ_MEAN_TOKEN_SUM, "
             "SEQ_MEAN_TOKEN_MEAN or SEQ_MEAN_TOKEN_SUM_NORM");
        return {};
    }
    return reduction;
  }

 private:
  void Fail(const std::string& field, std::string description) {
    violations_->push_back({prefix_ + field, std::move(description)});
  }

  // A global count that the loss needs; 1 and a violation if it is absent.
  double GlobalCount(bool has, int64_t count, const char* field) {
    if (has && count >= 1) return static_cast<double>(count);
    if (!has) {
      violations_->push_back({std::string("global_counts.") + field,
                              "is required by policy_loss.denominator GLOBAL"});
    }
    return 1.0;
  }

  double GlobalTokens(const v1::GlobalCounts& counts) {
    if (counts.has_num_kept_tokens()) {
      return GlobalCount(true, counts.num_kept_tokens(), "num_kept_tokens");
    }
    return GlobalCount(counts.has_num_tokens(), counts.num_tokens(),
                       "num_tokens");
  }

  double NormLength(const v1::PolicyLoss& loss) {
    if (!loss.has_norm_length()) {
      return facts_.padded_length > 0
                 ? static_cast<double>(facts_.padded_length)
                 : 1.0;
    }
    if (loss.norm_length() > 0.0 && std::isfinite(loss.norm_length())) {
      return loss.norm_length();
    }
    Fail("policy_loss.norm_length", "must be a finite length > 0");
    return 1.0;
  }

  const LossFacts& facts_;
  const std::string prefix_;
  Violations* const violations_;
};

// global_counts itself, whatever reads it.
void CheckGlobalCounts(const v1::GlobalCounts& counts, Violations* violations) {
  const auto check = [&](bool has, double value, const char* field,
                         const char* reason) {
    if (!has || (value > 0.0 && std::isfinite(value))) return;
    violations->push_back({std::string("global_counts.") + field, reason});
  };
  const auto number = [](int64_t count) { return static_cast<double>(count); };
  check(counts.has_num_tokens(), number(counts.num_tokens()), "num_tokens",
        "must be >= 1");
  check(counts.has_num_sequences(), number(counts.num_sequences()),
        "num_sequences", "must be >= 1");
  check(counts.has_num_kept_tokens(), number(counts.num_kept_tokens()),
        "num_kept_tokens", "must be >= 1");
  check(counts.has_num_ranks(), number(counts.num_ranks()), "num_ranks",
        "must be >= 1");
  check(counts.has_weight_sum(), counts.weight_sum(), "weight_sum",
        "must be a finite number > 0");
}

}  // namespace

kernels::LossReduction DecodeReduction(const v1::PolicyLoss& loss,
                                       const LossFacts& facts,
                                       const std::string& prefix,
                                       Violations* violations) {
  return ReductionDecoder(facts, prefix, violations).Decode(loss);
}

void DecodeGlobalWeights(const v1::CorrectRequest& request,
                         kernels::CorrectionSpec* spec,
                         Violations* violations) {
  if (!request.has_global_counts()) return;
  const v1::GlobalCounts& counts = request.global_counts();
  CheckGlobalCounts(counts, violations);
  if (!counts.has_weight_sum()) return;
  if (!spec->weight.normalize) {
    violations->push_back({"global_counts.weight_sum",
                           "is read only where the weight is normalized"});
    return;
  }
  const bool by_row = kernels::IsSequenceLevel(spec->weight.level);
  const int64_t count = by_row ? counts.num_sequences() : counts.num_tokens();
  if (count < 1) {
    violations->push_back(
        {by_row ? "global_counts.num_sequences" : "global_counts.num_tokens",
         "is required beside weight_sum"});
    return;
  }
  spec->weight.given_mean = counts.weight_sum() / static_cast<double>(count);
}

}  // namespace counterweight::server
