// A server that answers as the test defines.
#ifndef COUNTERWEIGHT_TESTS_CLIENT_CPP_FAKE_SERVICE_H_
#define COUNTERWEIGHT_TESTS_CLIENT_CPP_FAKE_SERVICE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "counterweight/v1/correction_service.grpc.pb.h"
#include "google/protobuf/message.h"
#include "grpcpp/server.h"

namespace counterweight::client {

// Listens on a free loopback port. Set the answers before the first call.
class FakeService final : public v1::CorrectionService::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::CorrectStreamResponse,
                                          v1::CorrectStreamRequest>;

  FakeService();
  ~FakeService() override;

  const std::string& target() const { return target_; }
  // Calls so far.
  int calls() const { return calls_; }

  std::function<grpc::Status(grpc::ServerContext*, const v1::CorrectRequest&,
                             v1::CorrectResponse*)>
      on_correct;
  std::function<grpc::Status(grpc::ServerContext*, Stream*)> on_stream;
  // Null: the server is without the RPC.
  std::function<grpc::Status(const v1::MergeSumsRequest&,
                             v1::MergeSumsResponse*)>
      on_merge;
  v1::GetServerInfoResponse info;

 private:
  grpc::Status Correct(grpc::ServerContext* context,
                       const v1::CorrectRequest* request,
                       v1::CorrectResponse* response) override;
  grpc::Status CorrectStream(grpc::ServerContext* context,
                             Stream* stream) override;
  grpc::Status GetServerInfo(grpc::ServerContext* context,
                             const v1::GetServerInfoRequest* request,
                             v1::GetServerInfoResponse* response) override;
  grpc::Status MergeSums(grpc::ServerContext* context,
                         const v1::MergeSumsRequest* request,
                         v1::MergeSumsResponse* response) override;

  std::atomic<int> calls_{0};
  std::string target_;
  std::unique_ptr<grpc::Server> server_;
};

// Returns a status with one detail, like the server's.
grpc::Status StatusWith(grpc::StatusCode code, const std::string& message,
                        const google::protobuf::Message& detail);

// Blocks until the call's client has left.
void WaitForCancellation(grpc::ServerContext* context);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_TESTS_CLIENT_CPP_FAKE_SERVICE_H_
