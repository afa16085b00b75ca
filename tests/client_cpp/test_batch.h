// Batches for the client's tests.
#ifndef COUNTERWEIGHT_TESTS_CLIENT_CPP_TEST_BATCH_H_
#define COUNTERWEIGHT_TESTS_CLIENT_CPP_TEST_BATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/cpp/request.h"
#include "client/cpp/response.h"
#include "counterweight/v1/correction_service.pb.h"

namespace counterweight::client {

// Random log-probs, advantages and a mask with a fixed seed. Must not move
// while a request refers to it.
class TestBatch {
 public:
  // [rows, length].
  TestBatch(int64_t rows, int64_t length);
  // Packed rows of these lengths.
  explicit TestBatch(const std::vector<int64_t>& lengths);

  // Returns a request of rollout and old log-probs, mask, preset token_tis; no
  // outputs named.
  Request Weights() const;
  // Returns a request of all tensors, a loss, and all outputs.
  Request Everything() const;

  int64_t num_positions() const { return static_cast<int64_t>(mask_.size()); }

 private:
  void Draw(size_t positions);

  Request layout_;
  std::vector<float> rollout_;
  std::vector<float> old_;
  std::vector<float> current_;
  std::vector<float> advantages_;
  std::vector<uint8_t> mask_;
};

// The request as the contract's message, tensors and all.
v1::CorrectRequest ToMessage(const Request& request);

// An output's bytes; empty if the answer has none.
std::string Bytes(const Response& response, v1::TensorRole role);

// Fails the test unless outputs, loss, metrics and rules are the message's,
// byte for byte.
void ExpectSame(const Response& have, const v1::CorrectResponse& want);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_TESTS_CLIENT_CPP_TEST_BATCH_H_
