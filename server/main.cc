// counterweight-server: flags, signals, start and stop. Exit codes: 0 stopped
// by a signal, 1 cannot start, 2 wrong command line.
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/corrector.h"
#include "server/backend.h"
#include "server/flags.h"
#include "server/grpc_log.h"
#include "server/protobuf_log.h"
#include "server/request_log.h"
#include "server/server.h"
#include "server/spare_threads.h"
#include "server/version.h"

namespace counterweight::server {
namespace {

using std::chrono::steady_clock;

// How soon an idle server is noticed while draining.
constexpr double kDrainPollSeconds = 0.05;

// SIGTERM and SIGINT are taken with sigwait instead of handlers, so that all of
// gRPC may be used in answer to them. Blocked before any thread starts: threads
// inherit it.
sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // A client that goes away must not take the server along.
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

// True if a signal came within so many seconds.
bool WaitForSignal(const sigset_t& signals, double seconds) {
  const auto end = steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    const double left = std::max(
        0.0, std::chrono::duration<double>(end - steady_clock::now()).count());
    timespec wait{};
    wait.tv_sec = static_cast<time_t>(left);
    wait.tv_nsec = static_cast<long>((left - std::floor(left)) * 1e9);
    if (sigtimedwait(&signals, nullptr, &wait) > 0) return true;
    // Otherwise EINTR, by a debugger for instance.
    if (errno == EAGAIN) return false;
  }
}

// True if all requests were finished; false if the time was up or a second
// signal came.
bool Drain(const Config& config, const sigset_t& signals, Server* server) {
  server->AnnounceDrain();
  if (WaitForSignal(signals, config.drain_delay_s)) return false;
  server->RefuseNewWork();
  const auto end = steady_clock::now() +
                   std::chrono::duration<double>(config.drain_timeout_s);
  while (!server->WaitUntilIdle(std::chrono::nanoseconds(0))) {
    if (steady_clock::now() >= end) return false;
    if (WaitForSignal(signals, kDrainPollSeconds)) return false;
  }
  return true;
}

int Serve(const Config& config) {
  const sigset_t signals = BlockStopSignals();
  if (!HasSpareThreads(NumThreadsAtStart(config))) {
    std::cerr << "counterweight-server: cannot start "
              << NumThreadsAtStart(config)
              << " threads: the system allows fewer (ulimit -u, or pids.max of "
                 "the container); see --threads\n";
    return 1;
  }
  const std::shared_ptr<spdlog::logger> logger =
      MakeStderrLogger(config.log_level);
  // What the server logs while it goes is written too.
  const FlushAtEnd flush(logger);
  // Never deleted: gRPC logs to the process' very end.
  RequestLog& log = *new RequestLog(logger);
  LogGrpcTo(&log);
  LogProtobufTo(&log);

  std::string error;
  BackendChoice backend = MakeCorrector(config);
  std::string backend_json;
  std::unique_ptr<Server> server;
  if (backend.corrector != nullptr) {
    backend_json = ToJson(backend.corrector->Info());
    server =
        Server::Start(config, std::move(backend.corrector), logger, &error);
  } else {
    error = backend.reason;
  }
  if (server == nullptr) {
    logger->flush();
    std::cerr << "counterweight-server: " << error << "\n";
    return 1;
  }
  JsonObject fields;
  fields.Add("version", Version())
      .Add("revision", Revision())
      .AddRaw("backend", backend_json)
      .AddRaw("config", ToJson(config));
  if (!backend.reason.empty()) fields.Add("no_cuda", backend.reason);
  log.Event(spdlog::level::info, "started", fields);
  // For scripts, which wait for these lines.
  for (const std::string& address : server->addresses()) {
    std::cout << "counterweight-server listening on " << address << "\n";
  }
  if (!server->metrics_address().empty()) {
    std::cout << "metrics on http://" << server->metrics_address()
              << "/metrics\n";
  }
  std::cout << std::flush;

  int signal_number = 0;
  sigwait(&signals, &signal_number);
  log.Event(spdlog::level::info, "draining");
  const bool drained = Drain(config, signals, server.get());
  JsonObject end;
  end.Add("unfinished_requests", server->requests_in_flight());
  log.Event(spdlog::level::info, "stopped", end);
  if (!drained) {
    // Kernels cannot be interrupted, and nobody wants to wait any longer.
    server->UnlinkSockets();
    logger->flush();
    std::_Exit(0);
  }
  return 0;
}

int Main(const std::vector<std::string_view>& arguments) {
  const CommandLine line = ParseFlags(arguments);
  if (!line.error.empty()) {
    std::cerr << "counterweight-server: " << line.error << "\n";
    return 2;
  }
  if (line.help) {
    std::cout << FlagsHelp();
    return 0;
  }
  if (line.version) {
    std::cout << "counterweight-server " << Version() << " (" << Revision()
              << ")\n";
    return 0;
  }
  return Serve(line.config);
}

}  // namespace
}  // namespace counterweight::server

int main(int argc, char** argv) {
  return counterweight::server::Main({argv + 1, argv + argc});
}
