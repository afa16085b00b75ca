// REINFORCE; the engine rounds its logits and is four updates behind.
#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#include "client/cpp/examples/policy.h"

int main() {
  std::mt19937 random(0);  // NOLINT(bugprone-random-generator-seed)
  std::vector<policy::Logits> updates(1);  // logits after each
  while (updates.size() <= 50) {
    const policy::Logits newest = updates.back();
    const size_t stale = std::max<size_t>(updates.size(), 5) - 5;
    const policy::Logits engine =
        policy::LogSoftmax(policy::Rounded(updates[stale]));
    const std::vector<size_t> tokens = policy::Sample(engine, random);
    std::vector<double> weights(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      weights[i] = policy::Reward(tokens[i]);
    }
    updates.push_back(policy::Update(newest, tokens, weights));
  }
  std::printf("expected reward %.2f\n", policy::ExpectedReward(updates[50]));
  return 0;
}
