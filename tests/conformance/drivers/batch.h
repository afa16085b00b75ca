// A scenario's call as the C++ client takes it.
#ifndef COUNTERWEIGHT_TESTS_CONFORMANCE_DRIVERS_BATCH_H_
#define COUNTERWEIGHT_TESTS_CONFORMANCE_DRIVERS_BATCH_H_

#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "nlohmann/json.hpp"

namespace counterweight::conformance {

using nlohmann::json;

// Owns the inputs; README.md defines the numbers.
struct Batch {
  client::Request request;
  std::vector<std::vector<std::byte>> memory;
};

// Reads the members "batch", "method", "outputs", "request_id" of a call.
client::Status ReadBatch(const json& call, Batch* batch);

// Reports the answer of a Correct.
json Report(const client::Response& response);

// Reports what the sums of a step were finished to.
json Report(const v1::MergeSumsResponse& totals);

// Reports an error.
json Report(const client::Status& status);

}  // namespace counterweight::conformance

#endif  // COUNTERWEIGHT_TESTS_CONFORMANCE_DRIVERS_BATCH_H_
