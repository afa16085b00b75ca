// verl's threshold strings: "2.0", "0.5_5.0", "2.0,0.5_2.0,0.01". Grammar of
// verl-project/verl @1dda039b, verl/trainer/ppo/rollout_corr_helper.py,
// _parse_rollout_is_threshold and _parse_rollout_rs_thresholds.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_THRESHOLDS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_THRESHOLDS_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/struct.pb.h"
#include "kernels/spec.h"

namespace counterweight::server {

// Longest list of options or thresholds that is read, bytes; all eleven options
// need 128.
inline constexpr size_t kMaxListBytes = 4096;

// The non-empty, stripped parts of `text` between commas.
std::vector<std::string_view> SplitList(std::string_view text);

// Bounds of the importance weight, ratios, inclusive.
struct IsThreshold {
  double upper = 2.0;  // > 0, may be infinite
  // Present for "lower_upper": IcePop. Absent: TIS.
  std::optional<double> lower;  // > 0, <= upper
};

// Null, and sentences in *problems, if `value` is none.
std::optional<IsThreshold> ParseIsThreshold(
    const google::protobuf::Value& value, std::vector<std::string>* problems);

// One of the eleven rejection options.
struct RsOption {
  std::string_view name;  // "seq_mean_k1"
  // kRatio represents k1, with minus the log ratio as statistic.
  kernels::Estimator estimator;
  kernels::Aggregation aggregation;
};

// Sorted by name.
std::span<const RsOption> RsOptions();

// Null if there is none of that name.
const RsOption* FindRsOption(std::string_view name);

// Bounds of one option, inclusive, as verl's user wrote them. k1: both are > 0
// and their logs bound the statistic; k2 and k3: the statistic is <= upper.
struct RsThreshold {
  double lower = 0.0;
  double upper = kernels::kUnbounded;
};

// One threshold per entry of `options`; null entries (unknown options) are
// counted but not parsed. Empty, and sentences in *problems, if any is wrong.
std::vector<RsThreshold> ParseRsThresholds(
    const google::protobuf::Value& value,
    std::span<const RsOption* const> options,
    std::vector<std::string>* problems);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_THRESHOLDS_H_
