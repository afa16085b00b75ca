#include "server/embedded/engine.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "kernels/devices.h"
#include "server/engine/available_cpus.h"
#include "server/engine/names.h"

namespace counterweight::embedded {
namespace {

constexpr int kMaxThreads = 1024;

// Blocks all signals, so that threads which start meanwhile leave them to the
// program's own threads.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

Failure CheckDevice(int device) {
  std::string reason;
  const int count = kernels::NumCudaDevices(&reason);
  if (count == 0) {
    return {CW_FAILED_PRECONDITION, "backend \"cuda\": " + reason, {}};
  }
  if (device >= count) {
    return {
        CW_FAILED_PRECONDITION,
        server::Concat("there is no device ", device,
                       "; CUDA shows this process ", count, ", counted from 0"),
        {}};
  }
  return {};
}

}  // namespace

Failure Engine::Make(const cw_options& options,
                     std::shared_ptr<Engine>* engine) {
  const std::string_view name =
      options.backend == nullptr ? "cpu" : options.backend;
  server::RequestLimits limits;
  server::Violations violations;
  if (name != "cpu" && name != "cuda") {
    violations.push_back(
        {"backend", server::Concat("must be \"cpu\" or \"cuda\", not ",
                                   server::Quote(name))});
  }
  if (options.threads < 0 || options.threads > kMaxThreads) {
    violations.push_back(
        {"threads",
         server::Concat("must be from 1 to ", kMaxThreads,
                        ", or 0 for the machine's; it is ", options.threads)});
  }
  if (options.device < 0) violations.push_back({"device", "must be >= 0"});
  if (options.max_tokens < 0) {
    violations.push_back({"max_tokens", "must be >= 0"});
  }
  if (options.max_sequences < 0) {
    violations.push_back({"max_sequences", "must be >= 0"});
  }
  if (!violations.empty()) return InvalidArgument(violations);
  const bool cuda = name == "cuda";
  if (cuda) {
    Failure failure = CheckDevice(options.device);
    if (!failure.ok()) return failure;
  }
  if (options.max_tokens > 0) limits.max_tokens = options.max_tokens;
  if (options.max_sequences > 0) limits.max_sequences = options.max_sequences;
  const int threads =
      options.threads > 0 ? options.threads : server::AvailableCpus();
  engine->reset(new Engine(cuda, threads, options.device, limits));
  return {};
}

void Engine::Close() {
  is_closed_ = true;
  Backend* const backend = backend_.exchange(nullptr);
  if (backend != nullptr && backend->process == getpid()) delete backend;
}

Failure Engine::Use(kernels::Corrector** corrector) {
  if (is_closed_) {
    return {CW_FAILED_PRECONDITION, "the plan's handle was closed", {}};
  }
  const pid_t process = getpid();
  Backend* seen = backend_.load();
  if (seen == nullptr || seen->process != process) {
    if (seen != nullptr && cuda_) {
      return {CW_FAILED_PRECONDITION,
              "this process was forked from one that computed on a device, "
              "which CUDA does not survive; start it with spawn",
              {}};
    }
    std::string error;
    auto made = std::make_unique<Backend>();
    *made = {process, MakeCorrector(threads_, &error)};
    if (made->corrector == nullptr) return {CW_FAILED_PRECONDITION, error, {}};
    // A fork could leave a mutex locked. If two threads race here, one discards
    // its backend.
    if (backend_.compare_exchange_strong(seen, made.get())) {
      seen = made.release();
    }
  }
  *corrector = seen->corrector.get();
  if (cuda_) ReturnUnusedNowAndThen(**corrector);
  return {};
}

void Engine::ReturnUnusedNowAndThen(kernels::Corrector& corrector) {
  constexpr auto kPeriod = std::chrono::nanoseconds(std::chrono::seconds(5));
  const int64_t now = std::chrono::steady_clock::now().time_since_epoch() /
                      std::chrono::nanoseconds(1);
  int64_t last = last_return_ns_.load();
  if (now - last < kPeriod.count()) return;
  if (last_return_ns_.compare_exchange_strong(last, now)) {
    corrector.ReturnUnused();
  }
}

Failure Engine::Info(kernels::BackendInfo* info) {
  if (cuda_) {
    kernels::Corrector* corrector = nullptr;
    Failure failure = Use(&corrector);
    if (failure.ok()) *info = corrector->Info();
    return failure;
  }
  std::string error;
  // A backend with one thread uses the caller's.
  const auto corrector = MakeCorrector(1, &error);
  if (corrector == nullptr) return {CW_FAILED_PRECONDITION, error, {}};
  *info = corrector->Info();
  info->threads = threads_;
  return {};
}

server::DeclaredMethodPtr Engine::Declare(
    const server::Declaration& declaration) {
  const std::lock_guard<std::mutex> lock(mutex_);
  OfRun& run = declared_[declaration.run];
  if (run.method == nullptr) run.order = ++num_declared_;
  server::DeclaredMethodPtr before =
      std::exchange(run.method, declaration.method);
  if (declared_.size() > kMaxDeclared) {
    declared_.erase(std::min_element(declared_.begin(), declared_.end(),
                                     [](const auto& a, const auto& b) {
                                       return a.second.order < b.second.order;
                                     }));
  }
  return before;
}

server::DeclaredMethodPtr Engine::Declared(const std::string& run) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = declared_.find(run);
  return found == declared_.end() ? nullptr : found->second.method;
}

std::unique_ptr<kernels::Corrector> Engine::MakeCorrector(
    int threads, std::string* error) const {
  const BlockedSignals blocked;
  if (cuda_) return kernels::MakeCudaCorrector(device_, 0, error);
  auto corrector = kernels::MakeCpuCorrector(threads);
  if (corrector == nullptr) {
    *error = "this machine lacks the instruction set that this build needs";
  }
  return corrector;
}

}  // namespace counterweight::embedded
