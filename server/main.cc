// counterweight-server: configuration, signals, start and stop. Exit codes: 0
// stopped by a signal; 1 the machine does not let it start, or it lost a
// listener; 2 wrong configuration, or a wrong file that the configuration
// names.
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "kernels/corrector.h"
#include "kernels/devices.h"
#include "nlohmann/json.hpp"
#include "server/access/access.h"
#include "server/access/token_table.h"
#include "server/backend.h"
#include "server/base/config_error.h"
#include "server/base/heap.h"
#include "server/base/old_grpc.h"
#include "server/base/version.h"
#include "server/config/command_line.h"
#include "server/config/flags.h"
#include "server/config/probe.h"
#include "server/device_queues.h"
#include "server/log/library_log.h"
#include "server/log/request_log.h"
#include "server/reload.h"
#include "server/server.h"
#include "server/system_limits.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTERWEIGHT_HAS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTERWEIGHT_HAS_SANITIZER
#endif
#endif

namespace counterweight::server {
namespace {

using std::chrono::steady_clock;

// Beyond --drain_delay and --drain_timeout: closing what is left takes a
// second.
constexpr double kExitGraceSeconds = 1.5;
// Time for the log's last lines before the process ends without them.
constexpr std::chrono::milliseconds kLastWords{300};

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// SIGTERM, SIGINT and SIGHUP are taken with sigwait instead of handlers, so
// that all of gRPC may be used in answer to them.
sigset_t ServerSignals() {
  sigset_t signals = StopSignals();
  sigaddset(&signals, SIGHUP);
  return signals;
}

// Runs before the libraries' initialisers, since their threads inherit it, and
// before main reads files: a reload that is requested at the start does not
// kill the server, and is done as soon as it serves.
void BlockSignals(int /*argc*/, char** /*argv*/, char** /*environment*/) {
  const sigset_t signals = ServerSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // A broken connection must not kill the server.
  signal(SIGPIPE, SIG_IGN);
}
#ifdef COUNTERWEIGHT_HAS_SANITIZER
// The sanitizer's own initialiser has to be first.
[[gnu::constructor]] void BlockSignalsLater() {
  BlockSignals(0, nullptr, nullptr);
}
#else
[[gnu::section(".preinit_array"), gnu::used]] constexpr auto* kBeforeAll =
    &BlockSignals;
#endif

// For runs that only send a request, and may wait for an answer.
void UnblockSignals() {
  const sigset_t signals = ServerSignals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

// True if a signal arrived within `seconds`.
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

// A connection takes two descriptors, and many systems give a process 1024
// unless it requests more.
void RaiseFileLimit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

// Ends the process at a second signal, or when stopping takes too long:
// clients, the log's reader or a library may block any orderly end.
class Watchdog {
 public:
  // `seconds` from now, with `exit_code`. *server is used until Release.
  Watchdog(const sigset_t& signals, double seconds, int exit_code,
           Server* server, RequestLog* log)
      : exit_code_(exit_code), server_(server), log_(log) {
    std::thread([this, signals, seconds] {
      WaitForSignal(signals, seconds);
      EndProcess();
    }).detach();
  }

  // From now on the server removes its own sockets.
  void Release() {
    const std::lock_guard<std::mutex> lock(mutex_);
    server_ = nullptr;
  }

  // Without destruction: kernels cannot be interrupted.
  [[noreturn]] void EndProcess() {
    std::thread([this] {
      std::this_thread::sleep_for(kLastWords);
      std::_Exit(exit_code_);
    }).detach();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      int64_t unfinished_requests = 0;
      if (server_ != nullptr) {
        server_->UnlinkSockets();
        unfinished_requests = server_->requests_in_flight();
      }
      LogStopped(unfinished_requests, log_);
    }
    std::_Exit(exit_code_);
  }

  static void LogStopped(int64_t unfinished_requests, RequestLog* log) {
    log->Event(spdlog::level::info, "stopped",
               {{"unfinished_requests", unfinished_requests}});
    log->Flush();
  }

 private:
  const int exit_code_;
  std::mutex mutex_;  // guards server_
  Server* server_;
  RequestLog* const log_;
};

// True if all requests were finished.
bool Drain(const Config& config, Server* server) {
  const auto nanoseconds = [](double seconds) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(seconds));
  };
  server->AnnounceDrain();
  std::this_thread::sleep_for(nanoseconds(config.drain_delay_s));
  server->RefuseNewWork();
  return server->WaitUntilIdle(nanoseconds(config.drain_timeout_s));
}

using ReadAgain = std::function<CommandLine()>;

int Serve(const CommandLine& line, const ReadAgain& read_again) {
  Config config = line.config;
  if (config.backend != Backend::kCpu && kernels::IsBuiltWithCuda()) {
    WidenDeviceQueues();
  }
  const sigset_t signals = ServerSignals();
  RaiseFileLimit();
  BoundHeap();
  RecordNoLockOrder();
  const std::string limits = CheckSystemLimits(config);
  if (!limits.empty()) {
    std::cerr << "counterweight-server: " << limits << "\n";
    return 1;
  }
  const std::shared_ptr<spdlog::logger> logger =
      MakeStderrLogger(config.log_level);
  // Also writes the lines that the server logs during its destruction.
  const FlushAtEnd flush(logger);
  // Never deleted: gRPC logs to the process' very end.
  RequestLog& log = *new RequestLog(logger);
  LogLibrariesTo(&log);

  std::string error;
  BackendChoice backend = MakeCorrector(config);
  nlohmann::ordered_json backend_json;
  std::atomic<bool> has_failed = false;
  std::unique_ptr<Server> server;
  if (backend.corrector != nullptr) {
    backend_json = ToJson(backend.corrector->Info());
    server = Server::Start(config, std::move(backend.corrector), logger, &error,
                           [&] {
                             has_failed = true;
                             kill(getpid(), SIGTERM);
                           });
  } else {
    error = backend.reason;
  }
  if (server == nullptr) {
    logger->flush();
    std::cerr << "counterweight-server: " << WithOrigins(error, line) << "\n";
    return 1;
  }
  nlohmann::ordered_json fields = {
      {"version", Version()},    {"revision", Revision()},
      {"grpc", grpc::Version()}, {"grpc_defences", OldGrpcDefences()},
      {"backend", backend_json}, {"config", ToJson(config)}};
  if (!backend.reason.empty()) fields["no_cuda"] = backend.reason;
  log.Event(spdlog::level::info, "started", fields);
  // For scripts, which wait for these lines.
  for (const std::string& address : server->addresses()) {
    std::cout << "counterweight-server listening on " << address << "\n";
  }
  if (!server->metrics_url().empty()) {
    std::cout << "metrics on " << server->metrics_url() << "\n";
  }
  std::cout << std::flush;

  int signal_number = 0;
  while (sigwait(&signals, &signal_number) != 0 || signal_number == SIGHUP) {
    if (signal_number == SIGHUP) {
      ApplyReload(read_again(), &config, server.get(), logger.get(), &log);
    }
  }
  const int exit_code = has_failed ? 1 : 0;
  // Never deleted: its thread runs to the process' end.
  auto& watchdog = *new Watchdog(
      StopSignals(),
      config.drain_delay_s + config.drain_timeout_s + kExitGraceSeconds,
      exit_code, server.get(), &log);
  log.Event(spdlog::level::info, "draining");
  if (!Drain(config, server.get())) watchdog.EndProcess();
  watchdog.Release();
  server.reset();
  Watchdog::LogStopped(0, &log);
  return exit_code;
}

int RunProbe(const CommandLine& line) {
  ProbeRequest request = line.probe;
  request.certificate = line.config.tls_certificate;
  request.key = line.config.tls_key;
  std::string sentence;
  const bool is_serving = Probe(request, &sentence);
  (is_serving ? std::cout : std::cerr)
      << "counterweight-server: " << sentence << "\n";
  return is_serving ? 0 : 1;
}

// Prints the line of --tokens for the token on stdin, without the line's end.
int HashToken(const std::string& name) {
  std::string token;
  std::getline(std::cin, token);
  const absl::StatusOr<std::string> line = TokenLine(name, token);
  if (!line.ok()) {
    std::cerr << "counterweight-server: " << MessageOf(line.status()) << "\n";
    return 2;
  }
  std::cout << *line << "\n";
  return 0;
}

int Main(const std::vector<std::string_view>& arguments,
         const std::vector<std::string>& environment) {
  const CommandLine line = ParseFlags(arguments, environment);
  if (!line.probe.target.empty() || !line.hash_token.empty()) UnblockSignals();
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
  if (!line.probe.target.empty()) return RunProbe(line);
  if (!line.hash_token.empty()) return HashToken(line.hash_token);
  if (line.check_config) {
    std::cout << "counterweight-server: the configuration is valid\n";
    return 0;
  }
  const absl::Status files = Access::CheckFiles(line.config);
  if (!files.ok()) {
    std::cerr << "counterweight-server: " << WithOrigins(MessageOf(files), line)
              << "\n";
    return 2;
  }
  return Serve(line, [&] { return ParseFlags(arguments, environment); });
}

}  // namespace
}  // namespace counterweight::server

int main(int argc, char** argv) {
  try {
    std::vector<std::string> environment;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      environment.emplace_back(*entry);
    }
    return counterweight::server::Main({argv + 1, argv + argc}, environment);
  } catch (const std::exception& error) {
    std::cerr << "counterweight-server: " << error.what() << "\n";
    return 1;
  }
}
