// Corrects three tokens: `correct localhost:50051`.
#include <counterweight/client.h>

#include <cstdint>
#include <iostream>
#include <vector>

int main(int argc, char** argv) {
  namespace cw = counterweight;
  cw::Client client(argc > 1 ? argv[1] : "localhost:50051");

  const std::vector<float> rollout = {-1.0F, -2.0F, -0.5F};
  const std::vector<float> old = {-0.9F, -2.1F, -0.5F};
  const std::vector<uint8_t> mask = {1, 1, 0};
  std::vector<float> weights(3);
  cw::Request request;
  request.num_sequences = 1;
  request.length = 3;
  request.method = cw::Method::Preset("token_tis", {{"upper", 1.05}});
  request.inputs = {cw::Float32(cw::Role::kRolloutLogProbs, rollout),
                    cw::Float32(cw::Role::kOldLogProbs, old),
                    cw::ResponseMask(mask)};
  request.outputs = {
      {cw::Role::kWeights, weights.data(), weights.size() * sizeof(float)},
      {cw::Role::kKeepMask}};

  cw::Result result;
  const cw::Status status = client.Correct(request, &result);
  if (!status.ok()) {
    std::cerr << status.ToString() << "\n";
    return 1;
  }
  for (const float weight : weights) std::cout << weight << "\n";
  for (const uint8_t keep : result.Find(cw::Role::kKeepMask)->As<uint8_t>()) {
    std::cout << int{keep} << "\n";
  }
  return 0;
}
