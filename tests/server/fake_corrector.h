// A backend under the test's control.
#ifndef COUNTERWEIGHT_TESTS_SERVER_FAKE_CORRECTOR_H_
#define COUNTERWEIGHT_TESTS_SERVER_FAKE_CORRECTOR_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/corrector.h"

namespace counterweight::server {

// How a FakeCorrector behaves; shared with the test, which keeps it.
class FakeBackend {
 public:
  // Every later Correct waits in the backend until Open.
  void Close();
  void Open();
  // Lets `count` waiting or later calls pass.
  void LetPass(int count);
  // Waits until `count` calls are inside.
  void WaitForCalls(int count);
  // Sets the result of later calls.
  void SetResult(const kernels::CorrectResult& result);
  // Sets whether a device works.
  void SetAlive(bool is_alive) { is_alive_ = is_alive; }
  bool IsAlive() const { return is_alive_; }

  // Runs get their turn only from now on, or no longer.
  void SetTurn(kernels::Turn turn);
  // Gives it to those that wait, and waits until `count` do.
  void WakeAll();
  void WaitForWaiting(size_t count);

  // Waits until a run was informed that so many rows have arrived.
  void WaitForRows(int64_t rows);

  // Waits until ReturnUnused is called. Returns false after a minute.
  bool WaitForReturn();

  // Returns whether the latest run would see a stop request. REQUIRES: it is
  // inside.
  bool IsAskedToStop();

  // Called by the backend.
  void Begin(kernels::StopRequest stop);
  void Arrive(int64_t rows);
  void ReturnUnused();
  kernels::Turn TakeTurn(std::function<void()> wake);
  kernels::CorrectResult Enter(const kernels::Batch& batch);

 private:
  // Throws after two minutes. REQUIRES: `lock` holds mutex_.
  template <class F>
  void WaitUntil(std::unique_lock<std::mutex>& lock, F condition);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> is_alive_ = true;
  bool open_ = true;
  int passes_ = 0;
  int inside_ = 0;
  int64_t rows_ = 0;
  bool returned_ = false;
  kernels::StopRequest stop_;
  kernels::Turn turn_ = kernels::Turn::kNow;
  std::vector<std::function<void()>> waiting_;
  kernels::CorrectResult result_;
};

// Writes weights of 1 and keeps every token; sums hold the counts alone, but
// those that other parts are added to are the batch's.
class FakeCorrector final : public kernels::Corrector {
 public:
  explicit FakeCorrector(std::shared_ptr<FakeBackend> backend)
      : backend_(std::move(backend)) {}

  kernels::CorrectResult Correct(const kernels::CorrectionSpec& spec,
                                 const kernels::Batch& batch,
                                 const kernels::Outputs& outputs) override;
  std::unique_ptr<kernels::CorrectRun> Begin(
      const kernels::CorrectionSpec& spec, const kernels::Batch& batch,
      const kernels::Outputs& outputs, kernels::StopRequest stop) override;
  void ReturnUnused() override { backend_->ReturnUnused(); }
  bool IsAlive() override { return backend_->IsAlive(); }
  kernels::BackendInfo Info() const override;

 private:
  const std::shared_ptr<FakeBackend> backend_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_FAKE_CORRECTOR_H_
