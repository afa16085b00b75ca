// The RPCs of CorrectionService.
#ifndef COUNTERWEIGHT_SERVER_CORRECTION_SERVICE_H_
#define COUNTERWEIGHT_SERVER_CORRECTION_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "counterweight/v1/correction_service.grpc.pb.h"
#include "server/service_context.h"

namespace counterweight::server {

// Every method gets and gives bytes: that lets us admit a request before it is
// parsed, parse it off gRPC's threads, and bound what compressed bytes inflate
// to. On the wire nothing differs.
using RawService = v1::CorrectionService::WithRawCallbackMethod_Correct<
    v1::CorrectionService::WithRawCallbackMethod_CorrectStream<
        v1::CorrectionService::WithRawCallbackMethod_ListMethods<
            v1::CorrectionService::WithRawCallbackMethod_GetServerInfo<
                v1::CorrectionService::Service>>>>;

// Thread-safe. Must outlive the grpc::Server that it is registered with.
class CorrectionService final : public RawService {
 public:
  explicit CorrectionService(ServiceContext context);

  grpc::ServerUnaryReactor* Correct(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* CorrectStream(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* ListMethods(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;

 private:
  grpc::ServerUnaryReactor* Answer(std::string_view rpc,
                                   const google::protobuf::MessageLite& message,
                                   grpc::CallbackServerContext* context,
                                   grpc::ByteBuffer* response);
  // Counts and logs an answer that took no work.
  void Record(std::string_view rpc, const grpc::Status& status,
              size_t response_bytes,
              const grpc::CallbackServerContext& context);
  std::string MakeRequestId();

  const ServiceContext service_;
  const uint64_t id_prefix_;
  std::atomic<uint64_t> next_id_{0};
  std::atomic<int64_t> open_streams_{0};
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CORRECTION_SERVICE_H_
