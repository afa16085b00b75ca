#include "tests/server/publications.h"

#include <cstdint>
#include <initializer_list>

namespace counterweight::server {
namespace {

void AddDriftSums(v1::DriftSums* drift) {
  drift->set_log_ratio(-1.5);
  drift->set_k2(2.25);
  drift->set_k3(2.125);
  drift->set_excess(0.75);
  drift->set_excess_squared(4.5);
  drift->set_log_ppl_difference(0.0625);
  drift->set_ppl_ratio_excess(0.09375);
  drift->set_chi2_sequence(0.375);
  for (const int64_t count : {1, 2, 3, 4, 10, 60, 10, 4, 3, 2, 1}) {
    drift->add_token_histogram(count);
  }
  for (const int64_t count : {0, 0, 0, 1, 1, 3, 2, 0, 0, 0, 0}) {
    drift->add_sequence_histogram(count);
  }
}

void AddWeightSums(v1::WeightSums* weight) {
  weight->set_weight(101);
  weight->set_weight_squared(104.5);
  weight->set_excess(1);
  weight->set_excess_squared(4.25);
  weight->set_max(2);
  weight->set_tokens_high(5);
  weight->set_tokens_outside(8);
  weight->set_kept_weight(96);
  weight->set_kept_weight_squared(98.5);
}

void AddLossSums(v1::LossSums* loss) {
  loss->set_total(-0.5);
  loss->set_policy(-0.625);
  loss->set_log_ratio_kept(1.25);
  loss->set_gradient_squared(0.03125);
  loss->set_slope(3.5);
  loss->set_slope_clipped(0.4375);
  loss->set_slope_rejected(0.21875);
  loss->set_clipped(11);
  loss->set_high(6);
  loss->set_low(4);
  loss->mutable_kl_penalty()->set_penalty(0.875);
  loss->mutable_kl_penalty()->set_kl(9.5);
  loss->mutable_kl_penalty()->set_kl_tokens(95);
}

void AddRuleSums(const std::string& name, int64_t tokens, int64_t sequences,
                 v1::BatchSums* sums) {
  v1::RuleSums* const rule = sums->add_rules();
  rule->set_name(name);
  rule->set_dropped_tokens(tokens);
  rule->set_dropped_sequences(sequences);
}

void AddStalenessSums(v1::StalenessSums* staleness) {
  staleness->set_unknown_tokens(7);
  staleness->set_staleness(310);
  for (const int64_t tokens : {40, 20, 10, 13, 6, 4}) {
    v1::StalenessBucketSums* const bucket = staleness->add_buckets();
    bucket->set_tokens(tokens);
    bucket->set_log_ratio(-0.25 / static_cast<double>(tokens));
    bucket->set_k3(0.5 / static_cast<double>(tokens));
  }
  for (const int64_t count : {40, 20, 10, 13, 6, 3, 1, 0, 0, 0}) {
    staleness->add_histogram(count);
  }
}

}  // namespace

v1::PublishRequest FullPublication(const std::string& request_id,
                                   const std::string& run) {
  v1::PublishRequest request;
  request.set_request_id(request_id);
  request.mutable_labels()->set_run(run);
  request.mutable_labels()->set_replica("replica");
  request.mutable_labels()->set_policy_version(12);
  v1::BatchSums& sums = *request.mutable_sums();
  sums.set_sequences(9);
  sums.set_nonempty_sequences(7);
  sums.set_tokens(100);
  sums.set_kept_tokens(95);
  sums.set_kept_sequences(6);
  sums.set_non_finite_tokens(3);
  AddDriftSums(sums.mutable_drift());
  AddWeightSums(sums.mutable_weight());
  AddLossSums(sums.mutable_loss());
  AddRuleSums("mean_k3", 5, 1, &sums);
  AddRuleSums("mean_k3_2", 2, 2, &sums);
  AddStalenessSums(sums.mutable_staleness());
  return request;
}

}  // namespace counterweight::server
