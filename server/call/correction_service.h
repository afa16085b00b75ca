// The RPCs of CorrectionService.
#ifndef COUNTERWEIGHT_SERVER_CALL_CORRECTION_SERVICE_H_
#define COUNTERWEIGHT_SERVER_CALL_CORRECTION_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "google/protobuf/message_lite.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/server_callback.h"
#include "server/call/compute_call.h"
#include "server/call/instant_call.h"
#include "server/call/service_context.h"
#include "server/call/unary_call.h"

namespace counterweight::server {

// Every method is a stream of bytes, the unary ones too. So the server bounds
// the time before a request has arrived, admits it before it is parsed, parses
// it off gRPC's threads, and bounds what compressed bytes inflate to. On the
// wire nothing differs. Thread-safe.
class CorrectionService final : public grpc::CallbackGenericService {
 public:
  CorrectionService(const AdmitContext& admit, ComputeContext compute,
                    const ReportContext& report);

  // Must outlive the server that is built.
  void Register(grpc::ServerBuilder* builder);

 private:
  using Begin = std::function<RawReactor*(grpc::CallbackServerContext*)>;
  // One RPC: its path, and what serves it, `rpc` being the last part of the
  // path.
  struct Rpc {
    const char* path;
    Begin (*serve)(CorrectionService* self, std::string_view rpc);
  };
  static const Rpc kRpcs[];

  RawReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

  // A unary RPC that `make_work` computes on the executor.
  Begin Compute(std::string_view rpc, ComputeCall::MakeWork make_work);
  // A unary RPC with an answer, a message, that needs no executor.
  using Answer = std::function<std::unique_ptr<google::protobuf::MessageLite>(
      const grpc::CallbackServerContext&)>;
  Begin AnswerWith(std::string_view rpc, Answer answer);
  // A unary RPC that is answered on gRPC's thread.
  Begin Instant(std::string_view rpc, InstantAnswer answer);
  Begin Unary(std::string_view rpc, UnaryCall::OnRequest on_request);

  std::unique_ptr<google::protobuf::MessageLite> ServerInfo(
      const grpc::CallbackServerContext& context) const;
  // Counts and logs an answer that took no work.
  void Record(std::string_view rpc, const grpc::Status& status,
              size_t response_bytes,
              const grpc::CallbackServerContext& context);
  std::string MakeRequestId();

  const AdmitContext admit_;
  const ComputeContext compute_;
  const ReportContext report_;
  const uint64_t id_prefix_;
  std::map<std::string, Begin, std::less<>> rpcs_;  // by path
  std::unique_ptr<grpc::Service> registered_;
  std::atomic<uint64_t> next_id_{0};
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_CORRECTION_SERVICE_H_
