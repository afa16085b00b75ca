// The scripted server's answers, and the ways in which a scenario bends them.
#ifndef COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_ANSWERS_H_
#define COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_ANSWERS_H_

#include <cstdint>
#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "google/protobuf/message.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"
#include "nlohmann/json.hpp"

namespace counterweight::conformance {

using nlohmann::json;

// Bytes of a tensor in the layout; 0 if role or dtype are unknown.
uint64_t TensorBytes(const v1::Layout& layout, v1::TensorRole role,
                     v1::DType dtype);

// The answer to a request: every output that it names, or WEIGHTS and
// KEEP_MASK. README.md has the numbers. `patch` is the argument of the steps
// "answer" and "result".
v1::CorrectResponse Answer(const v1::CorrectRequest& request,
                           const json& patch);

// Merges protobuf's JSON into the message; throws std::runtime_error if it does
// not fit.
void Merge(const json& from, google::protobuf::Message* message);

// Makes the message unreadable, or gives it a field of a newer contract.
void AddUnreadableField(int number, google::protobuf::Message* message);
void AddUnknownField(google::protobuf::Message* message);

// The status of the step "error"; sets the trailers.
grpc::Status Error(const json& error, grpc::ServerContext* context);

}  // namespace counterweight::conformance

#endif  // COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_ANSWERS_H_
