// A server in this process, and a client of it.
#ifndef COUNTERWEIGHT_TESTS_SERVER_RUNNING_SERVER_H_
#define COUNTERWEIGHT_TESTS_SERVER_RUNNING_SERVER_H_

#include <memory>
#include <sstream>
#include <string>

#include "counterweight/v1/correction_service.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/channel.h"
#include "server/base/file_descriptor.h"
#include "server/server.h"
#include "tests/server/fake_corrector.h"

namespace counterweight::server {

// Listens on free loopback ports, drains without delay.
Config TestConfig();

// Returns a channel with a connection of its own; channels with equal arguments
// share one. A busy machine may need longer for it than the 20 s of gRPC.
std::shared_ptr<grpc::Channel> ConnectTo(const std::string& address);

// A running server; the test fails if it cannot start.
class RunningServer {
 public:
  // Uses a FakeCorrector, see backend().
  explicit RunningServer(const Config& config = TestConfig());
  // Uses the caller's corrector.
  RunningServer(const Config& config,
                std::unique_ptr<kernels::Corrector> corrector);

  Server& server() { return *server_; }
  FakeBackend& backend() { return *backend_; }
  const std::shared_ptr<grpc::Channel>& channel() { return channel_; }

  // Sets --unary_timeout and --stream_timeout while calls are open, which no
  // reload does; calls read them at every tick. A test whose call must come so
  // far before its time is up begins with TestConfig's hour, because a busy
  // machine may take any time for that.
  void SetCallTimeouts(double seconds);

  // Calls Correct without a deadline, unless `context` has one.
  grpc::Status Correct(const v1::CorrectRequest& request,
                       v1::CorrectResponse* response,
                       grpc::ClientContext* context = nullptr);
  // Returns the status of a Correct with an answer that does not matter.
  grpc::Status Correct(const v1::CorrectRequest& request);

  // grpc.health.v1.ServingStatus of `service`: 1 SERVING, 2 NOT_SERVING; -1 if
  // health does not know it.
  int Health(const std::string& service);
  // A fresh connection to the metrics' address.
  FileDescriptor ConnectToMetrics();
  // Returns the answer to GET /metrics, headers included.
  std::string Scrape() { return Get("/metrics"); }
  // Returns the answer to GET of another path there.
  std::string Get(const std::string& path);
  // Stops the server permanently, and returns its whole log.
  std::string Stop();

 private:
  const std::shared_ptr<FakeBackend> backend_ = std::make_shared<FakeBackend>();
  Config config_;
  std::ostringstream log_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::CorrectionService::Stub> stub_;
};

// A valid request of two sequences with three tokens each.
v1::CorrectRequest SmallRequest(const std::string& request_id = "",
                                const std::string& run = "");

// Returns the status's one detail of type T; fails the test if there is none.
template <typename T>
T DetailOf(const grpc::Status& status) {
  google::rpc::Status details;
  T detail;
  if (!details.ParseFromString(status.error_details()) ||
      details.details_size() != 1 || !details.details(0).UnpackTo(&detail)) {
    throw std::runtime_error("no such detail: " + status.error_message());
  }
  return detail;
}

// Returns the delay that gRPC's own retry policies read from an error's
// trailers, in milliseconds; empty if there is none.
std::string PushbackOf(const grpc::ClientContext& context);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_RUNNING_SERVER_H_
