// The batch that every call of a run sends.
#ifndef COUNTERWEIGHT_CLIENT_CPP_BENCH_BATCH_H_
#define COUNTERWEIGHT_CLIENT_CPP_BENCH_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/cpp/bench/settings.h"
#include "client/cpp/client.h"

namespace counterweight::bench {

// Memory for tensors: the client's if they are shared, else ordinary.
class Memory {
 public:
  // Reserves `bytes` zeroed bytes. kResourceExhausted if there are none.
  client::Status Allocate(client::Client* client, bool shared, size_t bytes,
                          client::Access access);
  std::byte* data() const {
    return shared_.data() != nullptr ? shared_.data() : own_.get();
  }

 private:
  client::SharedBuffer shared_;
  std::unique_ptr<std::byte[]> own_;
};

// Log-probs with drift between the policies, so that weights, rules and losses
// have work to do.
class Batch {
 public:
  // Generates the batch from the settings' seed.
  client::Status Make(const Settings& settings, client::Client* client);

  // Has no outputs. Refers to the batch.
  const client::Request& request() const { return request_; }
  int64_t num_positions() const { return num_positions_; }

 private:
  client::Status AddTensor(const Settings& settings, v1::TensorRole role,
                           v1::DType dtype, const std::vector<float>& values,
                           client::Client* client);

  client::Request request_;
  std::vector<Memory> memory_;
  int64_t num_positions_ = 0;
};

// Destinations of one worker's answers: one Output for each of the settings'
// outputs, in memory of its own.
class Outputs {
 public:
  client::Status Make(const Settings& settings, const Batch& batch,
                      client::Client* client);
  const std::vector<client::Output>& outputs() const { return outputs_; }

 private:
  std::vector<client::Output> outputs_;
  std::vector<Memory> memory_;
};

}  // namespace counterweight::bench

#endif  // COUNTERWEIGHT_CLIENT_CPP_BENCH_BATCH_H_
