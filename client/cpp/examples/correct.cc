// Importance weights of a small batch. Usage: correct TARGET
#include <cstdint>
#include <cstdio>
#include <vector>

#include "client/cpp/client.h"
#include "client/cpp/method.h"

namespace cw = counterweight::client;
namespace v1 = counterweight::v1;

int main(int argc, char** argv) {
  cw::Client client(argc > 1 ? argv[1] : "localhost:50051");

  // Two sequences of three positions; the last one is padding.
  const std::vector<float> rollout = {-1.0F, -2.0F, -0.5F, -1.0F, -3.0F, 0.0F};
  const std::vector<float> old = {-0.9F, -2.1F, -0.5F, -1.0F, -2.0F, 0.0F};
  const std::vector<uint8_t> mask = {1, 1, 1, 1, 1, 0};
  std::vector<float> weights(mask.size());

  cw::Request request;
  cw::SetPadded(/*num_sequences=*/2, /*length=*/3, &request);
  request.header.mutable_labels()->set_run("my-run");
  *request.header.mutable_method() = cw::Preset("token_tis", {{"upper", 2.0}});
  request.inputs = {cw::Float32(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, rollout),
                    cw::Float32(v1::TENSOR_ROLE_OLD_LOG_PROBS, old),
                    cw::ResponseMask(mask)};
  // Weights into our own vector, the keep mask into memory of the response.
  request.outputs = {{.role = v1::TENSOR_ROLE_WEIGHTS,
                      .data = weights.data(),
                      .bytes = weights.size() * sizeof(float)},
                     {.role = v1::TENSOR_ROLE_KEEP_MASK}};

  cw::Response response;
  const cw::Status status = client.Correct(request, &response);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  const auto keep =
      response.Find(v1::TENSOR_ROLE_KEEP_MASK)->As<const uint8_t>();
  for (size_t i = 0; i < weights.size(); ++i) {
    std::printf("%.4f %d\n", weights[i], keep[i]);
  }
  for (const auto& [name, value] : response.message.metrics()) {
    std::printf("%s %g\n", name.c_str(), value);
  }
  return 0;
}
