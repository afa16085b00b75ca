#include "server/server.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "server/correct_stream.h"
#include "server/metrics_server.h"
#include "server/reflection.h"
#include "server/unix_socket.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

// "" is the server as a whole, what probes ask for.
constexpr const char* kHealthNames[] = {"",
                                        "counterweight.v1.CorrectionService"};

}  // namespace

std::unique_ptr<Server> Server::Start(
    const Config& config, std::unique_ptr<kernels::Corrector> corrector,
    std::shared_ptr<spdlog::logger> logger, std::string* error) {
  std::unique_ptr<Server> server(
      new Server(config, std::move(corrector), std::move(logger)));
  // Metrics before gRPC: who is ready is also observed.
  if (!server->StartSharedMemory(error) || !server->StartMetrics(error) ||
      !server->StartGrpc(error)) {
    return nullptr;
  }
  server->SetServing(true);
  return server;
}

Server::Server(const Config& config,
               std::unique_ptr<kernels::Corrector> corrector,
               std::shared_ptr<spdlog::logger> logger)
    : config_(config),
      corrector_(std::move(corrector)),
      log_(std::move(logger)),
      registry_(std::make_shared<prometheus::Registry>()),
      process_metrics_(MakeProcessMetrics()),
      metrics_(registry_.get()),
      drift_({config.max_runs, config.max_runs_per_client}, registry_.get()),
      admission_({.max_requests = config.max_requests_in_flight,
                  .max_bytes = config.max_bytes_in_flight,
                  .max_queued = config.max_queued_requests}),
      staging_(corrector_.get()),
      executor_(NumThreads(config)) {
  metrics_.SetBackend(corrector_->Info());
}

Server::~Server() {
  if (grpc_ == nullptr) return;
  AnnounceDrain();
  RefuseNewWork();
  // Work is not interrupted, so this ends.
  while (!WaitUntilIdle(std::chrono::hours(1))) {
  }
  grpc_->Shutdown();
  grpc_->Wait();
  // Tasks of streams that ended before their admission.
  executor_.Stop();
  uses_.WaitUntilUnused();
}

bool Server::StartMetrics(std::string* error) {
  if (!config_.metrics_listen) return true;
  ListenAddress address = *config_.metrics_listen;
  try {
    exposer_ = std::make_unique<prometheus::Exposer>(
        MetricsServerOptions(address.ToString()));
  } catch (const std::exception&) {
    *error = fmt::format(
        "cannot listen on --metrics_listen={}: the port is taken, or the "
        "address is not ours",
        address.ToString());
    return false;
  }
  exposer_->RegisterCollectable(registry_);
  exposer_->RegisterCollectable(process_metrics_);
  sampled_metrics_ = MakeSampledMetrics(Samples());
  exposer_->RegisterCollectable(sampled_metrics_);
  address.port = static_cast<uint16_t>(exposer_->GetListeningPorts().front());
  metrics_address_ = address.ToString();
  return true;
}

std::vector<Sampled> Server::Samples() const {
  using enum prometheus::MetricType;
  const auto number = [](auto read) {
    return [read] { return static_cast<double>(read()); };
  };
  std::vector<Sampled> samples = {
      {"counterweight_requests_queued", "Batches that wait for admission.",
       Gauge, number([this] { return admission_.requests_queued(); })},
      {"counterweight_admitted_bytes",
       "Bytes of input, scratch, output and shared memory admitted.", Gauge,
       number([this] { return admission_.bytes_in_flight(); })},
      {"counterweight_admitted_bytes_limit", "The most of them.", Gauge,
       number([this] { return config_.max_bytes_in_flight; })},
      {"counterweight_staging_used_bytes", "Staging memory in use.", Gauge,
       number([this] { return staging_.used_bytes(); })},
      {"counterweight_staging_free_bytes", "Staging memory kept for reuse.",
       Gauge, number([this] { return staging_.free_bytes(); })},
      {"counterweight_log_lines_dropped_total",
       "Log lines that were not written: stderr was not read, or failed.",
       Counter, number([this] { return log_.lines_dropped(); })}};
  if (config_.shared_memory_socket.empty()) return samples;
  samples.insert(
      samples.end(),
      {{"counterweight_shared_memory_regions", "Regions that clients share.",
        Gauge, number([this] { return shared_memory_->regions(); })},
       {"counterweight_shared_memory_bytes", "Their bytes on the host.", Gauge,
        number([this] { return shared_memory_->bytes(); })},
       {"counterweight_shared_memory_device_bytes", "Their bytes on devices.",
        Gauge, number([this] { return shared_memory_->device_bytes(); })},
       {"counterweight_shared_memory_errors_total",
        "Connections and registrations refused, and failed accepts.", Counter,
        number([this] { return shared_memory_->errors(); })}});
  return samples;
}

bool Server::StartSharedMemory(std::string* error) {
  if (config_.shared_memory_socket.empty()) return true;
  shared_memory_ =
      SharedMemoryListener::Start({.path = config_.shared_memory_socket,
                                   .max_bytes = config_.max_shared_memory_bytes,
                                   .backend = corrector_.get()},
                                  &admission_, &log_, error);
  return shared_memory_ != nullptr;
}

bool Server::StartGrpc(std::string* error) {
  service_ = std::make_unique<CorrectionService>(
      ServiceContext{.config = config_,
                     .corrector = corrector_.get(),
                     .backend = corrector_->Info(),
                     .admission = &admission_,
                     .executor = &executor_,
                     .metrics = &metrics_,
                     .drift = &drift_,
                     .log = &log_,
                     .staging = &staging_,
                     .uses = &uses_,
                     .regions = shared_memory_.get(),
                     .shared_memory_socket = config_.shared_memory_socket,
                     .on_device_error = [this] { SetServing(false); }});
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  SetReflection(config_.reflection, &builder);
  // Of all RPCs: Correct's own limit may be less than a stream's chunk, and is
  // looked at when its message is parsed.
  builder.SetMaxReceiveMessageSize(static_cast<int>(
      std::max(config_.max_message_bytes, kMaxChunkBytes + kMaxChunkFraming)));
  // Compressed messages reach the service as they came; see ParsePayload.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  // Otherwise a second server on the same port takes half of the connections
  // instead of failing.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterService(service_.get());
  std::vector<int> ports(config_.listen.size());
  for (size_t i = 0; i < ports.size(); ++i) {
    const ListenAddress& address = config_.listen[i];
    if (address.IsUnix() &&
        !CheckSocketPath("--listen=unix:", address.path, error))
      return false;
    builder.AddListeningPort(address.ToString(),
                             grpc::InsecureServerCredentials(), &ports[i]);
  }
  {
    // Nobody else may connect between bind and chmod.
    const PrivateFiles private_files;
    grpc_ = builder.BuildAndStart();
  }
  if (grpc_ == nullptr) {
    const auto failed = std::find(ports.begin(), ports.end(), 0);
    const size_t i = failed == ports.end() ? 0 : failed - ports.begin();
    *error = fmt::format(
        "cannot listen on --listen={}: the port is taken, or the address is "
        "not ours",
        config_.listen[i].ToString());
    return false;
  }
  for (size_t i = 0; i < ports.size(); ++i) {
    ListenAddress address = config_.listen[i];
    if (!address.IsUnix()) address.port = static_cast<uint16_t>(ports[i]);
    addresses_.push_back(address.ToString());
  }
  return true;
}

void Server::AnnounceDrain() { SetServing(false); }

void Server::RefuseNewWork() { admission_.Close(); }

bool Server::WaitUntilIdle(std::chrono::nanoseconds timeout) {
  return admission_.WaitUntilIdle(timeout);
}

void Server::UnlinkSockets() const {
  for (const ListenAddress& address : config_.listen) {
    if (address.IsUnix()) unlink(address.path.c_str());
  }
  if (shared_memory_ != nullptr) shared_memory_->UnlinkSocket();
}

void Server::SetServing(bool serving) {
  const std::lock_guard<std::mutex> lock(serving_mutex_);
  if (serving && has_stopped_serving_) return;
  has_stopped_serving_ = !serving;
  metrics_.ready.Set(serving ? 1 : 0);
  for (const char* name : kHealthNames) {
    grpc_->GetHealthCheckService()->SetServingStatus(name, serving);
  }
}

}  // namespace counterweight::server
