#include "server/engine/groups_reference.h"

#include <cmath>
#include <cstdio>
#include <string_view>

#include "kernels/group_baseline.h"
#include "server/engine/codec_group_systems.h"

namespace counterweight::server {
namespace {

using kernels::GroupBaseline;
using kernels::RewardStd;
using kernels::Whitening;

constexpr std::string_view kGroupIntroduction = R"(
## Group baselines

`GroupAdvantages` (`client.group_advantages`) makes advantages of the rewards of groups of answers to one prompt:

    a_i = (r_i - b_i) / (s_i + epsilon), nothing divided where s_i = 0

where the group's n voters have the rewards r_j. `GRPO`, `DR_GRPO`, `REINFORCE_PP_BASELINE`: b = mean r_j. `RLOO`: b_i = mean
of the other voters, of all for a row that does not vote. `std` is s: of the group's voters (`GROUP`, the default of GRPO),
of all voters (`BATCH`), of the group's other voters (`OTHERS`), each with n - 1 below the sum, or none. Then `clip`, then
`whitening` over the kept tokens of all rows. Deviations are those from the mean, in float64, sums are exact: the order
of rows changes no bit.

Rules reject rows before a loss reads their advantages, so that there are two passes: a correction without advantages
gives the keep mask, `GroupAdvantages` reads how many tokens of each row it keeps, a second correction computes the loss.
A rule with `NEGATIVE_ADVANTAGE` reads the advantages before rejection, those of all rows as voters; the loss those after.
By default kept rows vote, a group needs two, and a row of a group with less has the advantage 0: in other systems rejected
rows vote, and a group's only survivor can get any advantage
([verl#6375](https://github.com/verl-project/verl/issues/6375)).

Sources: Shao et al. 2024 (GRPO), Liu et al. 2025 (Dr. GRPO), Ahmadian et al. 2024 (RLOO), Hu 2025 (REINFORCE++). What
`system` takes is what these functions compute, rewards that are NaN apart:

| system | baseline | divided by | lonely row | then |
|---|---|---|---|---|
)";

std::string Divisor(const GroupBaseline& baseline) {
  const char* of = "";
  switch (baseline.std) {
    case RewardStd::kNone:
      return "";
    case RewardStd::kGroup:
      of = "group";
      break;
    case RewardStd::kBatch:
      of = "batch";
      break;
    case RewardStd::kOthers:
      of = "others";
      break;
  }
  char text[64];
  std::snprintf(text, sizeof(text), "std of the %s + %g", of, baseline.epsilon);
  return text;
}

std::string Last(const GroupSystem& system) {
  const GroupBaseline& baseline = system.baseline;
  std::string text;
  if (std::isfinite(baseline.clip)) {
    char clip[32];
    std::snprintf(clip, sizeof(clip), "clip %g", baseline.clip);
    text += clip;
  }
  if (baseline.whitening != Whitening::kNone) {
    if (!text.empty()) text += ", ";
    text += baseline.whitening == Whitening::kSample ? "whitening, n - 1"
                                                     : "whitening, n";
  }
  if (system.merges_ragged) {
    if (!text.empty()) text += ", ";
    text += "groups of several sizes are one";
  }
  return text;
}

}  // namespace

std::string GroupBaselines() {
  std::string text(kGroupIntroduction);
  for (const GroupSystem& system : GroupSystems()) {
    const GroupBaseline& baseline = system.baseline;
    text += "| `" + std::string(system.name) + "` | " +
            (baseline.leaves_one_out ? "mean of the others" : "mean") + " | " +
            Divisor(baseline) + " | " +
            (baseline.lonely_is_raw ? "reward" : "0") + " | " + Last(system) +
            " |\n";
  }
  return text;
}

}  // namespace counterweight::server
