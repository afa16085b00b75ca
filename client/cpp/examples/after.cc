// The loop of before.cc with importance weights. Usage: after TARGET
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "client/cpp/client.h"
#include "client/cpp/examples/policy.h"
#include "client/cpp/method.h"

namespace cw = counterweight::client;
namespace v1 = counterweight::v1;

int main(int argc, char** argv) {
  cw::Client client(argc > 1 ? argv[1] : "localhost:50051");
  cw::Request request;
  cw::SetPadded(/*num_sequences=*/64, /*length=*/32, &request);
  *request.header.mutable_method() = cw::Preset("token_tis");
  const std::vector<uint8_t> mask(policy::kBatch, 1);
  std::vector<float> corrections(mask.size());
  request.outputs = {{.role = v1::TENSOR_ROLE_WEIGHTS,
                      .data = corrections.data(),
                      .bytes = corrections.size() * sizeof(float)}};
  cw::Response response;
  std::mt19937 random(0);  // NOLINT(bugprone-random-generator-seed)
  std::vector<policy::Logits> updates(1);  // logits after each
  while (updates.size() <= 50) {
    const policy::Logits newest = updates.back();
    const size_t stale = std::max<size_t>(updates.size(), 5) - 5;
    const policy::Logits engine =
        policy::LogSoftmax(policy::Rounded(updates[stale]));
    const std::vector<size_t> tokens = policy::Sample(engine, random);
    const std::vector<float> rollout = policy::Of(engine, tokens);
    const std::vector<float> old =
        policy::Of(policy::LogSoftmax(newest), tokens);
    request.inputs = {cw::Float32(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, rollout),
                      cw::Float32(v1::TENSOR_ROLE_OLD_LOG_PROBS, old),
                      cw::ResponseMask(mask)};
    const cw::Status status = client.Correct(request, &response);
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      return 1;
    }
    std::vector<double> weights(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      weights[i] = policy::Reward(tokens[i]) * corrections[i];
    }
    updates.push_back(policy::Update(newest, tokens, weights));
  }
  std::printf("expected reward %.2f\n", policy::ExpectedReward(updates[50]));
  return 0;
}
