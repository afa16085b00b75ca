#include "tests/server/fake_corrector.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

namespace counterweight::server {

template <class F>
void FakeBackend::WaitUntil(std::unique_lock<std::mutex>& lock, F condition) {
  // The exception fails a test that would otherwise hang.
  if (!changed_.wait_for(lock, std::chrono::minutes(2), condition)) {
    throw std::runtime_error("the fake backend waited for two minutes");
  }
}

void FakeBackend::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  open_ = false;
}

void FakeBackend::Open() {
  const std::lock_guard<std::mutex> lock(mutex_);
  open_ = true;
  changed_.notify_all();
}

void FakeBackend::LetPass(int count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  passes_ += count;
  changed_.notify_all();
}

void FakeBackend::WaitForCalls(int count) {
  std::unique_lock<std::mutex> lock(mutex_);
  WaitUntil(lock, [&] { return inside_ == count; });
}

void FakeBackend::SetResult(const kernels::CorrectResult& result) {
  const std::lock_guard<std::mutex> lock(mutex_);
  result_ = result;
}

void FakeBackend::WaitForRows(int64_t rows) {
  std::unique_lock<std::mutex> lock(mutex_);
  WaitUntil(lock, [&] { return rows_ >= rows; });
}

void FakeBackend::ReturnUnused() {
  const std::lock_guard<std::mutex> lock(mutex_);
  returned_ = true;
  changed_.notify_all();
}

bool FakeBackend::WaitForReturn() {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, std::chrono::minutes(1),
                           [this] { return returned_; });
}

bool FakeBackend::IsAskedToStop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stop_();
}

void FakeBackend::Begin(kernels::StopRequest stop) {
  const std::lock_guard<std::mutex> lock(mutex_);
  stop_ = std::move(stop);
}

void FakeBackend::Arrive(int64_t rows) {
  const std::lock_guard<std::mutex> lock(mutex_);
  rows_ = rows;
  changed_.notify_all();
}

void FakeBackend::SetTurn(kernels::Turn turn) {
  const std::lock_guard<std::mutex> lock(mutex_);
  turn_ = turn;
}

void FakeBackend::WakeAll() {
  std::vector<std::function<void()>> woken;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    turn_ = kernels::Turn::kNow;
    woken.swap(waiting_);
  }
  for (const std::function<void()>& wake : woken) wake();
}

void FakeBackend::WaitForWaiting(size_t count) {
  std::unique_lock<std::mutex> lock(mutex_);
  WaitUntil(lock, [&] { return waiting_.size() == count; });
}

kernels::Turn FakeBackend::TakeTurn(std::function<void()> wake) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (turn_ == kernels::Turn::kLater) {
    waiting_.push_back(std::move(wake));
    changed_.notify_all();
  }
  return turn_;
}

kernels::CorrectResult FakeBackend::Enter(const kernels::Batch& batch) {
  std::unique_lock<std::mutex> lock(mutex_);
  kernels::CorrectResult result = result_;
  ++inside_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return open_ || passes_ > 0; });
  if (!open_) --passes_;
  --inside_;
  changed_.notify_all();
  result.sums.num_sequences = batch.num_sequences;
  result.sums.nonempty_sequences = batch.num_sequences;
  result.sums.tokens = batch.offsets[batch.num_sequences];
  result.sums.kept_tokens = result.sums.tokens;
  result.sums.kept_sequences = batch.num_sequences;
  result.sums.weight.normalizer = 1;
  return result;
}

kernels::CorrectResult FakeCorrector::Correct(
    const kernels::CorrectionSpec& spec, const kernels::Batch& batch,
    const kernels::Outputs& outputs) {
  kernels::CorrectResult result = backend_->Enter(batch);
  if (outputs.partial_sums) {
    result.partial = kernels::MakeCpuCorrector(1)
                         ->Correct(spec, batch, {.partial_sums = true})
                         .partial;
  }
  const int64_t size = batch.offsets[batch.num_sequences];
  if (outputs.weights != nullptr) std::fill_n(outputs.weights, size, 1.0F);
  if (outputs.keep_mask != nullptr) {
    std::fill_n(outputs.keep_mask, size, uint8_t{1});
  }
  return result;
}

namespace {

// The base class's whole run, which also reports each arrival.
class FakeRun final : public kernels::CorrectRun {
 public:
  FakeRun(FakeBackend* backend, std::unique_ptr<kernels::CorrectRun> whole)
      : backend_(backend), whole_(std::move(whole)) {}

  void Advance(int64_t rows, bool /*has_mask*/) override {
    backend_->Arrive(rows);
  }
  kernels::Turn TakeTurn(std::function<void()> wake) override {
    return backend_->TakeTurn(std::move(wake));
  }
  kernels::CorrectResult Finish() override { return whole_->Finish(); }

 private:
  FakeBackend* const backend_;
  const std::unique_ptr<kernels::CorrectRun> whole_;
};

}  // namespace

std::unique_ptr<kernels::CorrectRun> FakeCorrector::Begin(
    const kernels::CorrectionSpec& spec, const kernels::Batch& batch,
    const kernels::Outputs& outputs, kernels::StopRequest stop) {
  backend_->Begin(stop);
  return std::make_unique<FakeRun>(
      backend_.get(),
      kernels::Corrector::Begin(spec, batch, outputs, std::move(stop)));
}

kernels::BackendInfo FakeCorrector::Info() const {
  return {.name = "cpu",
          .instruction_set = "fake",
          .threads = 2,
          .devices = {{.index = 0, .name = "fake", .memory_bytes = 1}}};
}

}  // namespace counterweight::server
