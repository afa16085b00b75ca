#include "tests/client_cpp/fake_service.h"

#include <chrono>
#include <stdexcept>
#include <thread>

#include "google/rpc/status.pb.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace counterweight::client {

FakeService::FakeService() {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) throw std::runtime_error("cannot listen");
  target_ = "127.0.0.1:" + std::to_string(port);
}

FakeService::~FakeService() {
  server_->Shutdown(std::chrono::system_clock::now());
}

grpc::Status FakeService::Correct(grpc::ServerContext* context,
                                  const v1::CorrectRequest* request,
                                  v1::CorrectResponse* response) {
  ++calls_;
  return on_correct(context, *request, response);
}

grpc::Status FakeService::CorrectStream(grpc::ServerContext* context,
                                        Stream* stream) {
  ++calls_;
  // A copy: the test may write the next answer while this one is being given.
  const auto answer = on_stream;
  return answer(context, stream);
}

grpc::Status FakeService::GetServerInfo(
    grpc::ServerContext* /*context*/,
    const v1::GetServerInfoRequest* /*request*/,
    v1::GetServerInfoResponse* response) {
  *response = info;
  return grpc::Status::OK;
}

grpc::Status FakeService::MergeSums(grpc::ServerContext* /*context*/,
                                    const v1::MergeSumsRequest* request,
                                    v1::MergeSumsResponse* response) {
  ++calls_;
  if (on_merge == nullptr) return {grpc::UNIMPLEMENTED, ""};
  return on_merge(*request, response);
}

grpc::Status StatusWith(grpc::StatusCode code, const std::string& message,
                        const google::protobuf::Message& detail) {
  google::rpc::Status status;
  status.set_code(code);
  status.set_message(message);
  static_cast<void>(status.add_details()->PackFrom(detail));
  return {code, message, status.SerializeAsString()};
}

void WaitForCancellation(grpc::ServerContext* context) {
  while (!context->IsCancelled()) std::this_thread::yield();
}

}  // namespace counterweight::client
