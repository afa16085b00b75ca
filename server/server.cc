#include "server/server.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
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
  // Metrics first: who is ready is also observed.
  if (!server->StartMetrics(error) || !server->StartGrpc(error)) return nullptr;
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
      admission_(config.max_requests_in_flight, config.max_bytes_in_flight),
      executor_(NumThreads(config)),
      service_({.config = config,
                .corrector = corrector_.get(),
                .backend = corrector_->Info(),
                .admission = &admission_,
                .executor = &executor_,
                .metrics = &metrics_,
                .drift = &drift_,
                .log = &log_,
                .on_device_error = [this] { SetServing(false); }}) {
  metrics_.SetBuildInfo(corrector_->Info());
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
}

bool Server::StartMetrics(std::string* error) {
  if (!config_.metrics_listen) return true;
  ListenAddress address = *config_.metrics_listen;
  try {
    exposer_ = std::make_unique<prometheus::Exposer>(address.ToString());
  } catch (const std::exception&) {
    *error = fmt::format(
        "cannot listen on --metrics_listen={}: the port is taken, or the "
        "address is not ours",
        address.ToString());
    return false;
  }
  exposer_->RegisterCollectable(registry_);
  exposer_->RegisterCollectable(process_metrics_);
  address.port = static_cast<uint16_t>(exposer_->GetListeningPorts().front());
  metrics_address_ = address.ToString();
  return true;
}

bool Server::StartGrpc(std::string* error) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(static_cast<int>(config_.max_message_bytes));
  // Compressed messages reach the service as they came; see ParsePayload.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  // Otherwise a second server on the same port takes half of the connections
  // instead of failing.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterService(&service_);
  std::vector<int> ports(config_.listen.size());
  for (size_t i = 0; i < ports.size(); ++i) {
    const ListenAddress& address = config_.listen[i];
    if (address.IsUnix() && !CheckSocketPath(address.path, error)) return false;
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
}

void Server::SetServing(bool serving) {
  metrics_.ready.Set(serving ? 1 : 0);
  for (const char* name : kHealthNames) {
    grpc_->GetHealthCheckService()->SetServingStatus(name, serving);
  }
}

}  // namespace counterweight::server
