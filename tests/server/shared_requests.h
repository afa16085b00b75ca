// Requests with tensors in a client's shared memory.
#ifndef COUNTERWEIGHT_TESTS_SERVER_SHARED_REQUESTS_H_
#define COUNTERWEIGHT_TESTS_SERVER_SHARED_REQUESTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/server/running_server.h"

namespace counterweight::server {

// Sets the tensor's range instead of its data.
void SetRange(const std::string& handle, uint64_t offset, uint64_t length,
              v1::Tensor* tensor);

// Returns SmallRequest() with tensor i at offset 64 i of the region `inputs`,
// mapped at `memory`, weights written to offset 0 of the region `outputs`, and
// the keep mask to 64.
v1::CorrectRequest SharedRequest(const std::string& inputs, void* memory,
                                 const std::string& outputs);

// Returns the violations' fields; empty if the request is answered.
std::vector<std::string> WrongFields(const v1::CorrectRequest& request,
                                     RunningServer* running);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_SHARED_REQUESTS_H_
