#include "tests/fuzz/stream_server.h"

#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "spdlog/sinks/null_sink.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/laws.h"

namespace counterweight::fuzz {
namespace {

server::Config MakeConfig() {
  server::Config config;
  config.max_tokens = 2048;
  config.max_sequences = 64;
  config.max_bytes_in_flight = int64_t{1} << 20;
  config.max_message_bytes = int64_t{1} << 20;
  config.max_runs = 4;
  return config;
}

}  // namespace

StreamServer::StreamServer()
    : corrector_(kernels::MakeCpuCorrector(1, kernels::CpuIsa::kGeneric)),
      log_(std::make_shared<spdlog::logger>(
          "fuzz", std::make_shared<spdlog::sinks::null_sink_mt>())),
      config_(MakeConfig()),
      access_(server::Access::Load(MakeConfig(), &log_).value()),
      metrics_(&registry_),
      drift_({.max_runs = 4, .max_runs_per_client = 4}, &registry_),
      admission_({.max_requests = 4,
                  .max_bytes = MakeConfig().max_bytes_in_flight,
                  .max_queued = 4}),
      arrivals_(8),
      clock_(std::chrono::milliseconds(100)),
      staging_(corrector_.get()),
      executor_(2),
      service_({.config = &config_,
                .access = access_.get(),
                .arrivals = &arrivals_,
                .resets = &resets_,
                .clock = &clock_,
                .admission = &admission_,
                .executor = &executor_,
                .transport = &transport_,
                .metrics = &metrics_,
                .uses = &uses_},
               {.config = &config_,
                .corrector = corrector_.get(),
                .backend = corrector_->Info(),
                .staging = &staging_,
                .regions = nullptr,
                .shared_memory_socket = "",
                .on_devices_lost = [] {}},
               {.metrics = &metrics_,
                .drift = &drift_,
                .log = &log_,
                .spans = nullptr}) {
  // The test checks a call's end, not gRPC's log lines about it.
  SilenceLibraries();
  grpc::ServerBuilder builder;
  service_.Register(&builder);
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  // Not an in-process channel: gRPC 1.51's keeps the memory of every call that
  // its server ends first.
  const std::string address =
      "unix-abstract:counterweight-fuzz-" + std::to_string(getpid());
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  grpc_ = builder.BuildAndStart();
  Expect(grpc_ != nullptr, "a server starts");
  channel_ = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
}

bool StreamServer::IsIdle() const {
  return admission_.requests_in_flight() == 0 &&
         admission_.requests_queued() == 0 &&
         admission_.bytes_in_flight() == 0 && staging_.used_bytes() == 0;
}

void StreamServer::ExpectIdle() {
  // A client may see its call's end before the server's threads release it.
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!IsIdle() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  Expect(IsIdle(), "nothing is in flight after a call");
}

}  // namespace counterweight::fuzz
