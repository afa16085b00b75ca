// Prints FINDINGS.md, the reference of the doctor's findings. `make docs` runs
// it.
#include <cstdio>

#include "kernels/doctor/finding.h"

namespace counterweight::kernels::doctor {
namespace {

constexpr char kHead[] = R"(# Findings

Written by `make docs` from `kernels/doctor/table.cc`. `counterweight doctor FILE`, `counterweight_rl.diagnose()` and the RPC `Diagnose` name with
these words what is wrong with a batch. One idea carries most of it: each repair is tried, and the one that makes the drift vanish is named, with the
drift as sent and as repaired (mean distance of the two log-probs of a token, capped at 4 nats).

An `error` makes what is learned from the batch noise or worse; a `warning` is rarely meant so; a `note` may be. Confidence is 1 where counts prove the
fault, 1 - repaired / observed for repairs, and for statistics grows with their distance from chance.

Integers are counted over every token. What is tried token by token is tried on at most 65536 positions: whole rows, chosen by a hash of their index,
so an examination takes milliseconds whatever the batch. Advantages are read of every row, since groups must be whole. Outside the mask only whether
a rollout log-prob is there, finite and not 0, is counted. The same bytes give the same findings on every processor.

| name | severity | fault | way out |
|---|---|---|---|
)";

constexpr char kTail[] = R"(
`old_equals_rollout` is an error where the request has versions and a token is stale.

## What it cannot see

- Sampling at a temperature, with top-p or top-k, where *both* sides report log-probs of the raw distribution: the numbers are those of a healthy batch.
- `swapped` where rollout and trainer have equal weights: neither direction differs.
- Prompt tokens inside the mask where the engine reports the prompt's log-probs too.
- A temperature within 5 % of 1 where the engine computes in int4 or drifts as much. Elsewhere its value is read within 2 % with bfloat16
  engines, and was up to 2.4 % off with int4.
- top-k = 2, which is taken for `log2`.
- Few tokens: facts need 8 to 16, shifts and fillers about 200, statistics about 1500. `swapped`, `tail_retokenised` and `rows_permuted` of a part of
  the rows need more, the more certain the policy is.
- Copies and exchanges of rows that the sample does not hold.

Thresholds come from batches of models with fewer than a million parameters: an alarm is a reason to look, with numbers and an example row to look at.
)";

void PrintPage() {
  std::fputs(kHead, stdout);
  for (int i = 0; i < kNumNames; ++i) {
    const Description& row = Describe(static_cast<Name>(i));
    std::printf("| `%s` | %s | %s | %s |\n", row.text, NameOf(row.severity),
                row.meaning, row.way_out);
  }
  std::fputs(kTail, stdout);
}

}  // namespace
}  // namespace counterweight::kernels::doctor

int main() {
  counterweight::kernels::doctor::PrintPage();
  return 0;
}
