// The metrics of slime's and miles' TIS, IcePop and MIS over a batch's tokens.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_MISMATCH_PASS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_MISMATCH_PASS_H_

#include <cstddef>
#include <span>

#include "server/engine/corrected_tokens.h"
#include "server/engine/dialects/slime_correction.h"
#include "server/engine/dialects/slime_means.h"

namespace counterweight::server {

// The least and the largest ratio of log ratios that are clamped at 20.
SlimeInterval SafeRatios();

class SlimeMismatchPass {
 public:
  // `normalizer` is what the weights are divided by. The references must
  // outlive it.
  SlimeMismatchPass(const SlimeCorrection& correction, double normalizer,
                    SlimeMeans* means);

  // `policy`: the log-probs that are compared with the rollout's. The row is
  // started.
  void Add(const RowTokens& row, std::span<const double> policy);

 private:
  // Log ratios within these are not outside.
  struct LogInterval {
    double low;
    double high;
  };
  // The row's numbers, before and after exp.
  struct Levels {
    double policy_mean = 0.0;
    double rollout_mean = 0.0;
    double sum = 0.0;  // of the log ratios
    double mean = 0.0;
    double policy_ppl = 0.0;
    double rollout_ppl = 0.0;
    double ppl_ratio = 0.0;
    double chi2 = 0.0;
    double sequence = 0.0;  // ratios, clamped
    double geometric = 0.0;
  };

  static LogInterval LogsOf(const SlimeInterval& ratios);

  void AddTis();
  void AddMis(std::span<const double> policy, std::span<const double> rollout);
  void ReadLevels(std::span<const double> policy,
                  std::span<const double> rollout);
  void AddWeights();
  void AddOutside(kernels::Level level, const LogInterval& interval,
                  SlimeMean low, SlimeMean high);
  void AddVeto();
  double Bounded(double ratio) const;
  double ClampedRatio(size_t i) const;

  // Calls f(i) for each token that counts.
  template <class F>
  void ForCounted(const F& f) const {
    for (size_t i = 0; i < mask_.size(); ++i) {
      if (mask_[i] != 0) f(i);
    }
  }

  const SlimeCorrection& correction_;
  const double normalizer_;
  SlimeMeans& means_;
  const LogInterval bounds_;
  const LogInterval rs_;
  const double veto_;
  const SlimeInterval safe_ = SafeRatios();
  std::span<const uint8_t> mask_;
  Levels levels_;
  RowNumbers difference_, exp_, expm1_;
  RowNumbers row_exp_, row_expm1_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_MISMATCH_PASS_H_
