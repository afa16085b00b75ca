// The options of a handle, and a backend for each process that uses it.
#ifndef COUNTERWEIGHT_SERVER_EMBEDDED_ENGINE_H_
#define COUNTERWEIGHT_SERVER_EMBEDDED_ENGINE_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "kernels/corrector.h"
#include "server/embedded/counterweight.h"
#include "server/embedded/failure.h"
#include "server/engine/codec_declaration.h"
#include "server/engine/codec_layout.h"

namespace counterweight::embedded {

// Thread-safe.
class Engine {
 public:
  // Fails with all violations if an option is out of its range, or if this
  // build or this machine lacks the backend.
  static Failure Make(const cw_options& options,
                      std::shared_ptr<Engine>* engine);
  // REQUIRES: no call is under way.
  ~Engine() { Close(); }

  // Ends the backend; later calls fail. REQUIRES: no call is under way.
  void Close();

  const server::RequestLimits& limits() const { return limits_; }
  bool computes_on_device() const { return cuda_; }

  // Returns the backend of this process, which lives as long as the engine; the
  // first call makes it. *corrector is null if the failure is not OK.
  Failure Use(kernels::Corrector** corrector);
  // Describes the backend, without starting threads for it.
  Failure Info(kernels::BackendInfo* info);

  // Runs that can declare a method; beyond it the one that declared first is
  // forgotten.
  static constexpr size_t kMaxDeclared = 64;

  // Keeps the run's method; returns the one that it replaces. REQUIRES for this
  // and Declared: ForkGuard::is_safe().
  server::DeclaredMethodPtr Declare(const server::Declaration& declaration);
  // The method that the run declares; null: none.
  server::DeclaredMethodPtr Declared(const std::string& run) const;

 private:
  // There is no thread to do it, so calls do.
  void ReturnUnusedNowAndThen(kernels::Corrector& corrector);

  struct OfRun {
    uint64_t order = 0;
    server::DeclaredMethodPtr method;
  };

  struct Backend {
    pid_t process = 0;
    std::unique_ptr<kernels::Corrector> corrector;
  };

  Engine(bool cuda, int threads, int device, server::RequestLimits limits)
      : cuda_(cuda), threads_(threads), device_(device), limits_(limits) {}

  std::unique_ptr<kernels::Corrector> MakeCorrector(int threads,
                                                    std::string* error) const;

  const bool cuda_;
  const int threads_;
  const int device_;
  const server::RequestLimits limits_;
  std::atomic<int64_t> last_return_ns_ = 0;  // of the steady clock
  // A forked child does not delete its parent's backend, because the threads to
  // join do not exist there.
  std::atomic<Backend*> backend_ = nullptr;
  std::atomic<bool> is_closed_ = false;
  mutable std::mutex mutex_;  // guards what follows
  std::map<std::string, OfRun> declared_;
  uint64_t num_declared_ = 0;
};

}  // namespace counterweight::embedded

#endif  // COUNTERWEIGHT_SERVER_EMBEDDED_ENGINE_H_
