// The contract's service, answering by a scenario's script. A script is a list
// of
// steps:
//   wait             seconds; ends early if the client leaves
//   together         waits until the server has received so many calls; an
// error if they do not arrive within 30 s
//   error            ends the call: code, message, message_padding (bytes),
//                    retry_info (s), pushback (text), violations,
//                    unreadable_details
//   answer, result   the standard answer, bent by merge (protobuf's JSON),
//                    drop, append, resize, dtype, unknown_fields, unreadable
//                    MergeSums has no standard answer
//   forget_memory    forgets all regions: quietly, or disconnect
// Steps of streams are those of scripted_stream.h.
#ifndef COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_SCRIPTED_SERVICE_H_
#define COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_SCRIPTED_SERVICE_H_

#include <functional>
#include <string>

#include "counterweight/v1/correction_service.grpc.pb.h"
#include "nlohmann/json.hpp"
#include "tests/conformance/server/memory_socket.h"
#include "tests/conformance/server/recorder.h"

namespace counterweight::conformance {

using nlohmann::json;

// Runs the script of each call: `script["rpcs"][RPC][attempt]`; the last one
// also serves all later attempts.
class ScriptedService final : public v1::CorrectionService::Service {
 public:
  // Both pointers must outlive the service; `memory` may be null.
  ScriptedService(const json& script, Recorder* recorder, MemorySocket* memory)
      : script_(script), recorder_(recorder), memory_(memory) {}

 private:
  using Steps = std::function<grpc::Status(const json& step, bool* ended)>;

  grpc::Status Correct(grpc::ServerContext* context,
                       const v1::CorrectRequest* request,
                       v1::CorrectResponse* response) override;
  grpc::Status CorrectStream(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::CorrectStreamResponse,
                               v1::CorrectStreamRequest>* stream) override;
  grpc::Status ListMethods(grpc::ServerContext* context,
                           const v1::ListMethodsRequest* request,
                           v1::ListMethodsResponse* response) override;
  grpc::Status GetServerInfo(grpc::ServerContext* context,
                             const v1::GetServerInfoRequest* request,
                             v1::GetServerInfoResponse* response) override;
  grpc::Status MergeSums(grpc::ServerContext* context,
                         const v1::MergeSumsRequest* request,
                         v1::MergeSumsResponse* response) override;

  // The steps of this attempt; `otherwise` if the scenario has none.
  json StepsOf(const std::string& rpc, size_t attempt,
               const json& otherwise) const;
  // Runs the steps until one ends the call: those that all RPCs know, and the
  // others by `run`.
  grpc::Status Run(const json& steps, size_t call, grpc::ServerContext* context,
                   const Steps& run);
  grpc::Status AnswerUnary(const v1::CorrectRequest& request, const json& patch,
                           size_t call, grpc::ServerContext* context,
                           v1::CorrectResponse* response);

  const json script_;
  Recorder* const recorder_;
  MemorySocket* const memory_;
};

}  // namespace counterweight::conformance

#endif  // COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_SCRIPTED_SERVICE_H_
