// A running server: gRPC, health, reflection, metrics.
#ifndef COUNTERWEIGHT_SERVER_SERVER_H_
#define COUNTERWEIGHT_SERVER_SERVER_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "grpcpp/resource_quota.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "kernels/corrector.h"
#include "prometheus/registry.h"
#include "server/access/access.h"
#include "server/base/ticker.h"
#include "server/call/admission.h"
#include "server/call/arrivals.h"
#include "server/call/call_clock.h"
#include "server/call/correction_service.h"
#include "server/call/executor.h"
#include "server/call/staging_pool.h"
#include "server/call/transport_memory.h"
#include "server/call/use_count.h"
#include "server/config/config.h"
#include "server/config/current_config.h"
#include "server/listen/acceptor.h"
#include "server/listen/flood_watch.h"
#include "server/log/request_log.h"
#include "server/observe/drift_series.h"
#include "server/observe/health.h"
#include "server/observe/metrics.h"
#include "server/observe/page.h"
#include "server/observe/web_server.h"
#include "server/shared_memory/listener.h"
#include "server/trace/span_exporter.h"

namespace counterweight::server {

// Serves from construction to destruction. To stop without losing a request:
// AnnounceDrain, give clients time to see it, RefuseNewWork, WaitUntilIdle,
// destroy. Thread-safe.
class Server {
 public:
  // Null, and *error a sentence that names the address, if an address cannot be
  // bound. `on_failure` is called, from any thread, when the server has lost a
  // listener and is to be replaced; it is NOT_SERVING then.
  // REQUIRES: Validate(config) is empty.
  static std::unique_ptr<Server> Start(
      const Config& config, std::unique_ptr<kernels::Corrector> corrector,
      std::shared_ptr<spdlog::logger> logger, std::string* error,
      std::function<void()> on_failure = [] {});

  // Refuses new work, finishes what is in flight, then closes; calls that have
  // not been admitted by then have a second.
  ~Server();

  // As clients write them, with the ports that were chosen.
  const std::vector<std::string>& addresses() const {
    return acceptor_->addresses();
  }
  // "http://127.0.0.1:9464/metrics"; empty if metrics are off.
  const std::string& metrics_url() const { return metrics_url_; }

  // Health answers NOT_SERVING from now on; requests are still served.
  void AnnounceDrain();
  // New requests are answered UNAVAILABLE with a retry hint from now on.
  void RefuseNewWork();
  // Waits for the requests in flight; false if they take longer.
  bool WaitUntilIdle(std::chrono::nanoseconds timeout);
  // Applies the reloadable values of `config`.
  // REQUIRES: PlanReload made it of the configuration at Start.
  void SetConfig(const Config& config);
  // For the gauge: whether the configuration that was last read was valid.
  void ReportReload(bool success) { last_reload_succeeded_ = success; }

  int64_t requests_in_flight() const { return admission_.requests_in_flight(); }
  // Tasks that wait for a worker.
  int64_t waiting_tasks() const { return executor_.waiting(); }
  int64_t requests_queued() const { return admission_.requests_queued(); }
  int64_t bytes_in_flight() const { return admission_.bytes_in_flight(); }

  // Removes the Unix sockets' files: for an exit without destruction.
  void UnlinkSockets() const;

 private:
  Server(const Config& config, std::unique_ptr<kernels::Corrector> corrector,
         std::shared_ptr<spdlog::logger> logger);

  bool StartAccess(std::string* error);
  bool StartTraces(std::string* error);
  // Before the metrics, which show connections.
  bool Listen(std::string* error);
  bool StartMetrics(std::string* error);
  std::vector<Sampled> Samples() const;
  void AddAccessSamples(std::vector<Sampled>* samples) const;
  void AddTraceSamples(std::vector<Sampled>* samples) const;
  bool StartSharedMemory(std::string* error);
  bool StartGrpc(std::string* error, std::function<void()> on_failure);
  // Also informs gRPC's health and the gauge. Has no effect in a later state.
  void SetHealth(Health health);

  const Config config_;  // at Start
  CurrentConfig current_config_;
  const std::unique_ptr<kernels::Corrector> corrector_;
  RequestLog log_;
  std::unique_ptr<Access> access_;
  std::unique_ptr<SpanExporter> spans_;  // null: no traces
  // In the order of construction; each uses only what is above it.
  const std::shared_ptr<prometheus::Registry> registry_;
  const std::shared_ptr<prometheus::Collectable> process_metrics_;
  ServingMetrics metrics_;
  DriftSeries drift_;
  Admission admission_;
  Arrivals arrivals_;
  Resets resets_{
      [this](const std::string& connection) { acceptor_->Close(connection); }};
  CallClock clock_;
  StagingPool staging_;
  grpc::ResourceQuota quota_{"server"};
  TransportMemory transport_{
      [this](int64_t bytes) { quota_.Resize(static_cast<size_t>(bytes)); }};
  UseCount uses_;
  std::unique_ptr<SharedMemoryListener> shared_memory_;  // null: none
  Executor executor_;
  std::unique_ptr<CorrectionService> service_;
  std::unique_ptr<grpc::Server> grpc_;
  // Those over Unix sockets, and those over TCP.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> unix_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> tcp_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<FloodWatch> floods_;  // null: kHasOldGrpc is false
  std::mutex health_mutex_;  // a device may fail before serving begins
  std::atomic<Health> health_ = Health::kStarting;
  std::atomic<bool> last_reload_succeeded_ = true;
  Ticker trimmer_;
  std::unique_ptr<Page> page_;
  std::unique_ptr<WebServer> web_;
  std::string metrics_url_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SERVER_H_
