#include "server/server.h"

#include <limits.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "server/access/credentials.h"
#include "server/base/config_error.h"
#include "server/base/heap.h"
#include "server/base/monotonic.h"
#include "server/base/old_grpc.h"
#include "server/call/correct_stream.h"
#include "server/listen/connection_options.h"
#include "server/observe/metrics_server.h"
#include "server/observe/serving_table.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

constexpr std::chrono::seconds kCloseTimeout{1};
constexpr std::chrono::milliseconds kTrimPeriod{5000};

// Threads of reflection, gRPC's only synchronous service here: one per stream.
constexpr int kMaxSynchronousThreads = 32;

Admission::Limits AdmissionLimits(const Config& config) {
  return {.max_requests = config.max_requests_in_flight,
          .max_bytes = config.max_bytes_in_flight,
          .max_queued = config.max_queued_requests};
}

int64_t MaxArrivals(const Config& config) {
  return config.max_requests_in_flight + config.max_queued_requests;
}

// "" is the server as a whole, the name that probes use.
constexpr const char* kHealthNames[] = {"",
                                        "counterweight.v1.CorrectionService"};

consteval const MetricRow& Sample(std::string_view name) {
  return FindRow(kSampleTable, name);
}

consteval const MetricRow& SharedMemorySample(std::string_view name) {
  return FindRow(kSharedMemoryTable, name);
}

bool IsUnixSocket(int socket) {
  int domain = AF_UNSPEC;
  socklen_t size = sizeof(domain);
  return getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
         domain == AF_UNIX;
}

consteval const MetricRow& TlsSample(std::string_view name) {
  return FindRow(kTlsTable, name);
}

consteval const MetricRow& TraceSample(std::string_view name) {
  return FindRow(kTraceTable, name);
}

consteval const MetricRow& AccessSample(std::string_view name) {
  return FindRow(kAccessTable, name);
}

// Host names of the metrics port.
std::vector<std::string> MetricsHosts(const Config& config) {
  std::vector<std::string> hosts = config.metrics_hosts;
  std::array<char, HOST_NAME_MAX + 1> own{};
  if (gethostname(own.data(), own.size() - 1) == 0) {
    hosts.emplace_back(own.data());
  }
  return hosts;
}

// The period of checks on open calls: short enough for their timeouts, and for
// requests that wait for resources of a stalled call.
std::chrono::nanoseconds TickPeriod(const Config& config) {
  constexpr double kMostSeconds = 0.1;
  const double seconds = std::min(
      {kMostSeconds, config.stream_timeout_s / 4, config.unary_timeout_s / 4});
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

}  // namespace

std::unique_ptr<Server> Server::Start(
    const Config& config, std::unique_ptr<kernels::Corrector> corrector,
    std::shared_ptr<spdlog::logger> logger, std::string* error,
    std::function<void()> on_failure) {
  std::unique_ptr<Server> server(
      new Server(config, std::move(corrector), std::move(logger)));
  if (!server->StartAccess(error) || !server->StartTraces(error) ||
      !server->StartSharedMemory(error) || !server->Listen(error) ||
      !server->StartMetrics(error) ||
      !server->StartGrpc(error, std::move(on_failure))) {
    return nullptr;
  }
  server->SetHealth(Health::kReady);
  return server;
}

Server::Server(const Config& config,
               std::unique_ptr<kernels::Corrector> corrector,
               std::shared_ptr<spdlog::logger> logger)
    : config_(config),
      current_config_(config),
      corrector_(std::move(corrector)),
      log_(std::move(logger)),
      registry_(std::make_shared<prometheus::Registry>()),
      process_metrics_(MakeProcessMetrics()),
      metrics_(registry_.get()),
      drift_({.max_runs = config.max_runs,
              .max_runs_per_client = config.max_runs_per_client,
              .last_batches = config.page ? kPageBatches : 0,
              .gauge_window =
                  std::chrono::duration<double>(config.drift_gauge_window_s)},
             registry_.get()),
      admission_(AdmissionLimits(config)),
      arrivals_(MaxArrivals(config)),
      clock_(TickPeriod(config)),
      staging_(corrector_.get()),
      executor_(NumThreads(config)),
      trimmer_(kTrimPeriod, [this] {
        if (admission_.requests_in_flight() == 0) TrimHeap();
        corrector_->ReturnUnused();
      }) {
  metrics_.SetBackend(corrector_->Info());
}

Server::~Server() {
  trimmer_.Stop();
  if (grpc_ == nullptr) return;
  AnnounceDrain();
  RefuseNewWork();
  // Work is not interrupted, so this ends.
  while (!WaitUntilIdle(std::chrono::hours(1))) {
  }
  if (shared_memory_ != nullptr) shared_memory_->UnlinkSocket();
  floods_ = nullptr;
  acceptor_->Stop();
  web_ = nullptr;
  // gRPC cancels calls that arrive while it shuts down, as if their client had
  // left. On a connection that has ended for them they are UNAVAILABLE, which
  // clients try again.
  acceptor_->EndConnections();
  // Cancels what is left: watches of health, reflection, requests that do not
  // arrive.
  grpc_->Shutdown(After(kCloseTimeout));
  grpc_->Wait();
  clock_.Stop();
  // Tasks of streams that ended before their admission.
  executor_.Stop();
  uses_.WaitUntilUnused();
}

bool Server::StartAccess(std::string* error) {
  absl::StatusOr<std::unique_ptr<Access>> access = Access::Load(config_, &log_);
  if (!access.ok()) {
    *error = MessageOf(access.status());
    return false;
  }
  access_ = *std::move(access);
  return true;
}

bool Server::StartTraces(std::string* error) {
  if (!config_.otlp.why_off.empty()) {
    log_.Event(spdlog::level::warn, "traces_off",
               {{"reason", config_.otlp.why_off}});
  }
  if (config_.otlp.target.empty()) return true;
  spans_ = SpanExporter::Start(config_.otlp, &log_, error);
  return spans_ != nullptr;
}

bool Server::StartMetrics(std::string* error) {
  if (!config_.metrics_listen) return true;
  ListenAddress address = *config_.metrics_listen;
  if (config_.page) {
    page_ = std::make_unique<Page>(&drift_, addresses().front());
  }
  absl::StatusOr<std::unique_ptr<WebServer>> web = ServeMetrics(
      address, HasMetricsTls(config_),
      {.metrics = {HideOldGaugesOf(&drift_), registry_, process_metrics_,
                   MakeSampledMetrics(Samples())},
       .page = page_.get(),
       .health = &health_,
       .access = access_.get(),
       .hosts = MetricsHosts(config_)},
      &address.port);
  if (!web.ok()) {
    *error = MessageOf(web.status());
    return false;
  }
  web_ = *std::move(web);
  metrics_url_ =
      fmt::format("{}://{}/metrics", HasMetricsTls(config_) ? "https" : "http",
                  address.ToString());
  return true;
}

std::vector<Sampled> Server::Samples() const {
  const auto number = [](auto read) {
    return [read] { return static_cast<double>(read()); };
  };
  std::vector<Sampled> samples = {
      {Sample("counterweight_requests_queued"),
       number([this] { return admission_.requests_queued(); })},
      {Sample("counterweight_admitted_bytes"),
       number([this] { return admission_.bytes_in_flight(); })},
      {Sample("counterweight_admitted_bytes_limit"),
       number([this] { return current_config_.Get()->max_bytes_in_flight; })},
      {Sample("counterweight_waiting_bytes"),
       number([this] { return admission_.held_bytes(); })},
      {Sample("counterweight_unparsed_bytes"),
       number([this] { return transport_.lent_bytes(); })},
      {Sample("counterweight_arriving_requests"),
       number([this] { return arrivals_.calls(); })},
      {Sample("counterweight_tasks_waiting"),
       number([this] { return waiting_tasks(); })},
      {Sample("counterweight_connections"),
       number([this] { return acceptor_->connections(); })},
      {Sample("counterweight_connections_refused_total"),
       number([this] { return acceptor_->refused(); })},
      {Sample("counterweight_staging_used_bytes"),
       number([this] { return staging_.used_bytes(); })},
      {Sample("counterweight_staging_free_bytes"),
       number([this] { return staging_.free_bytes(); })},
      {Sample("counterweight_log_lines_dropped_total"),
       number([this] { return log_.lines_dropped(); })},
      {Sample("counterweight_config_last_reload_success"),
       number([this] { return last_reload_succeeded_ ? 1 : 0; })}};
  AddAccessSamples(&samples);
  AddTraceSamples(&samples);
  if (config_.shared_memory_socket.empty()) return samples;
  samples.insert(
      samples.end(),
      {{SharedMemorySample("counterweight_shared_memory_regions"),
        number([this] { return shared_memory_->regions(); })},
       {SharedMemorySample("counterweight_shared_memory_bytes"),
        number([this] { return shared_memory_->bytes(); })},
       {SharedMemorySample("counterweight_shared_memory_admitted_bytes"),
        number([this] { return admission_.lent_bytes(); })},
       {SharedMemorySample("counterweight_shared_memory_device_bytes"),
        number([this] { return shared_memory_->device_bytes(); })},
       {SharedMemorySample("counterweight_shared_memory_errors_total"),
        number([this] { return shared_memory_->errors(); })}});
  return samples;
}

void Server::AddAccessSamples(std::vector<Sampled>* samples) const {
  const auto add = [&](const MetricRow& row, auto read) {
    samples->push_back({row, [read] { return static_cast<double>(read()); }});
  };
  const Access* const access = access_.get();
  if (access->has_tls()) {
    add(TlsSample("counterweight_tls_certificate_expiry_seconds"),
        [access] { return access->tls_expiry_unix_s(); });
    add(TlsSample("counterweight_tls_files_valid"),
        [access] { return access->are_tls_files_valid(); });
  }
  if (access->has_tokens()) {
    add(AccessSample("counterweight_token_file_valid"),
        [access] { return access->is_token_file_valid(); });
  }
  if (access->has_tls() || access->has_tokens()) {
    add(AccessSample("counterweight_access_refused_total"),
        [access] { return access->refused(); });
  }
}

void Server::AddTraceSamples(std::vector<Sampled>* samples) const {
  if (spans_ == nullptr) return;
  const SpanExporter* const spans = spans_.get();
  samples->push_back(
      {TraceSample("counterweight_spans_exported_total"),
       [spans] { return static_cast<double>(spans->exported()); }});
  samples->push_back(
      {TraceSample("counterweight_spans_dropped_total"),
       [spans] { return static_cast<double>(spans->dropped()); }});
}

bool Server::StartSharedMemory(std::string* error) {
  if (config_.shared_memory_socket.empty()) return true;
  shared_memory_ = SharedMemoryListener::Start(
      {.path = config_.shared_memory_socket,
       .socket_mode = config_.socket_mode,
       .user_ids = {config_.shared_memory_uids.begin(),
                    config_.shared_memory_uids.end()},
       .max_bytes = config_.max_shared_memory_bytes,
       .backend = corrector_.get()},
      &admission_, &log_, error);
  return shared_memory_ != nullptr;
}

bool Server::Listen(std::string* error) {
  acceptor_ = Acceptor::Bind({.listen = config_.listen,
                              .max_connections = config_.max_connections,
                              .socket_mode = config_.socket_mode},
                             &log_, error);
  return acceptor_ != nullptr;
}

bool Server::StartGrpc(std::string* error, std::function<void()> on_failure) {
  const auto fail = [this] { SetHealth(Health::kFailed); };
  service_ = std::make_unique<CorrectionService>(
      AdmitContext{.config = &current_config_,
                   .access = access_.get(),
                   .arrivals = &arrivals_,
                   .resets = kHasOldGrpc ? &resets_ : nullptr,
                   .clock = &clock_,
                   .admission = &admission_,
                   .executor = &executor_,
                   .transport = &transport_,
                   .metrics = &metrics_,
                   .uses = &uses_},
      ComputeContext{.config = &current_config_,
                     .corrector = corrector_.get(),
                     .backend = corrector_->Info(),
                     .staging = &staging_,
                     .regions = shared_memory_.get(),
                     .shared_memory_socket = config_.shared_memory_socket,
                     .on_devices_lost = fail},
      ReportContext{.metrics = &metrics_,
                    .drift = &drift_,
                    .log = &log_,
                    .spans = spans_.get()});
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  // Otherwise a static library could be left out.
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  // The limit for all RPCs: Correct's own limit may be smaller than a stream's
  // chunk, and is checked when its message is parsed.
  builder.SetMaxReceiveMessageSize(static_cast<int>(
      std::max(config_.max_message_bytes, kMaxChunkBytes + kMaxChunkFraming)));
  // Compressed messages reach the service unchanged; see payload.h.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  SetConnectionOptions(config_, &builder);
  transport_.SetBytes(TransportBytes(config_));
  quota_.SetMaxThreads(kMaxSynchronousThreads);
  builder.SetResourceQuota(quota_);
  // One each on every machine: they take threads of the quota.
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  service_->Register(&builder);
  const auto adopt = [&](std::shared_ptr<grpc::ServerCredentials> credentials) {
    return builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        std::move(credentials));
  };
  unix_ = adopt(PlainCredentials(access_.get()));
  tcp_ = adopt(access_->has_tls() ? TlsCredentials(access_.get())
                                  : PlainCredentials(access_.get()));
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr) {
    *error = "gRPC cannot start; the log has its reason";
    return false;
  }
  acceptor_->Start(
      [this](int listener, int fd) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
            connection;
        connection.listener_fd = listener;
        connection.fd = fd;
        (IsUnixSocket(fd) ? unix_ : tcp_)->HandleNewConnection(&connection);
      },
      [this, fail, on_failure = std::move(on_failure)] {
        log_.Event(spdlog::level::err, "listener_lost");
        fail();
        on_failure();
      });
  if constexpr (kHasOldGrpc) {
    floods_ = std::make_unique<FloodWatch>(
        config_.max_streams_per_connection + Resets::kMost,
        [this](const std::string& peer) { acceptor_->Close(peer); });
  }
  return true;
}

void Server::AnnounceDrain() { SetHealth(Health::kDraining); }

void Server::RefuseNewWork() { admission_.Close(); }

bool Server::WaitUntilIdle(std::chrono::nanoseconds timeout) {
  return admission_.WaitUntilIdle(timeout);
}

void Server::UnlinkSockets() const {
  acceptor_->UnlinkSockets();
  if (shared_memory_ != nullptr) shared_memory_->UnlinkSocket();
}

void Server::SetConfig(const Config& config) {
  current_config_.Set(config);
  transport_.SetBytes(TransportBytes(config));
  arrivals_.SetMaxCalls(MaxArrivals(config));
  admission_.SetLimits(AdmissionLimits(config));
}

void Server::SetHealth(Health health) {
  const std::lock_guard<std::mutex> lock(health_mutex_);
  if (health <= health_) return;
  health_ = health;
  const bool is_serving = health == Health::kReady;
  metrics_.ready.Set(is_serving ? 1 : 0);
  for (const char* name : kHealthNames) {
    grpc_->GetHealthCheckService()->SetServingStatus(name, is_serving);
  }
}

}  // namespace counterweight::server
