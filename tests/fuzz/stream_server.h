// The server's calls in this process, over a socket without a file.
#ifndef COUNTERWEIGHT_TESTS_FUZZ_STREAM_SERVER_H_
#define COUNTERWEIGHT_TESTS_FUZZ_STREAM_SERVER_H_

#include <memory>
#include <string>

#include "grpcpp/channel.h"
#include "grpcpp/server.h"
#include "kernels/corrector.h"
#include "prometheus/registry.h"
#include "server/access/access.h"
#include "server/call/correction_service.h"
#include "server/call/staging_pool.h"
#include "server/call/transport_memory.h"
#include "server/call/use_count.h"
#include "server/config/current_config.h"

namespace counterweight::fuzz {

// Serves until the process ends.
class StreamServer {
 public:
  StreamServer();
  StreamServer(const StreamServer&) = delete;
  StreamServer& operator=(const StreamServer&) = delete;

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // Expects that all resources of calls are released soon.
  void ExpectIdle();

 private:
  bool IsIdle() const;

  const std::unique_ptr<kernels::Corrector> corrector_;
  server::RequestLog log_;
  server::CurrentConfig config_;
  const std::unique_ptr<const server::Access> access_;
  prometheus::Registry registry_;
  server::ServingMetrics metrics_;
  server::DriftSeries drift_;
  server::Admission admission_;
  server::Arrivals arrivals_;
  server::Resets resets_{[](const std::string& /*connection*/) {}};
  server::CallClock clock_;
  server::StagingPool staging_;
  server::TransportMemory transport_{[](int64_t /*bytes*/) {}};
  server::UseCount uses_;
  server::Executor executor_;
  server::CorrectionService service_;
  std::unique_ptr<grpc::Server> grpc_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace counterweight::fuzz

#endif  // COUNTERWEIGHT_TESTS_FUZZ_STREAM_SERVER_H_
