// Requests whose bytes lie in memory that a client shares.
#ifndef COUNTERWEIGHT_TESTS_SERVER_SHARED_REQUESTS_H_
#define COUNTERWEIGHT_TESTS_SERVER_SHARED_REQUESTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/server/running_server.h"

namespace counterweight::server {

// Says where the tensor's bytes lie instead of bringing them.
void SetRange(const std::string& handle, uint64_t offset, uint64_t length,
              v1::Tensor* tensor);

// SmallRequest() with tensor i at 64 i of the region `inputs`, where `memory`
// is, weights written at 0 of the region `outputs` and the keep mask at 64.
v1::CorrectRequest SharedRequest(const std::string& inputs, void* memory,
                                 const std::string& outputs);

// Fields that are wrong; empty if the request is answered.
std::vector<std::string> WrongFields(const v1::CorrectRequest& request,
                                     RunningServer* running);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_SHARED_REQUESTS_H_
