// A softmax over 16 tokens, for the loops before and after a correction.
#ifndef COUNTERWEIGHT_CLIENT_CPP_EXAMPLES_POLICY_H_
#define COUNTERWEIGHT_CLIENT_CPP_EXAMPLES_POLICY_H_

#include <array>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

namespace policy {

inline constexpr size_t kTokens = 16;
inline constexpr size_t kBatch = size_t{64} * 32;
using Logits = std::array<double, kTokens>;

// From 0.5 to 1.
inline double Reward(size_t token) {
  return 0.5 + 0.5 * static_cast<double>(token) / (kTokens - 1);
}

inline Logits LogSoftmax(Logits logits) {
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  for (double& logit : logits) logit -= std::log(sum);
  return logits;
}

// The logits of an engine with few bits.
inline Logits Rounded(Logits logits) {
  for (double& logit : logits) logit = std::nearbyint(logit);
  return logits;
}

inline std::vector<size_t> Sample(const Logits& log_probs,
                                  std::mt19937& random) {
  Logits probs{};
  for (size_t i = 0; i < kTokens; ++i) probs[i] = std::exp(log_probs[i]);
  std::discrete_distribution<size_t> any(probs.begin(), probs.end());
  std::vector<size_t> tokens(kBatch);
  for (size_t& token : tokens) token = any(random);
  return tokens;
}

// The log-prob of each token of a batch.
inline std::vector<float> Of(const Logits& log_probs,
                             const std::vector<size_t>& tokens) {
  std::vector<float> values;
  values.reserve(tokens.size());
  for (const size_t token : tokens) {
    values.push_back(static_cast<float>(log_probs[token]));
  }
  return values;
}

// Follows the gradient of -mean(weights * log-probs of the tokens) once.
inline Logits Update(Logits logits, const std::vector<size_t>& tokens,
                     const std::vector<double>& weights) {
  const Logits log_probs = LogSoftmax(logits);
  const double rate = 4.0 / static_cast<double>(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    logits[tokens[i]] += rate * weights[i];
    for (size_t j = 0; j < kTokens; ++j) {
      logits[j] -= rate * weights[i] * std::exp(log_probs[j]);
    }
  }
  return logits;
}

inline double ExpectedReward(const Logits& logits) {
  double sum = 0;
  const Logits log_probs = LogSoftmax(logits);
  for (size_t i = 0; i < kTokens; ++i)
    sum += std::exp(log_probs[i]) * Reward(i);
  return sum;
}

}  // namespace policy

#endif  // COUNTERWEIGHT_CLIENT_CPP_EXAMPLES_POLICY_H_
