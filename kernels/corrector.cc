#include "kernels/corrector.h"

#include <utility>

#include "kernels/walk/loss_batch.h"
#include "kernels/walk/make_plan.h"

namespace counterweight::kernels {
namespace {

// A run of a backend that begins when all rows have arrived.
class WholeRun final : public CorrectRun {
 public:
  WholeRun(Corrector* corrector, const CorrectionSpec& spec, const Batch& batch,
           const Outputs& outputs, StopRequest stop)
      : corrector_(corrector),
        spec_(spec),
        batch_(batch),
        outputs_(outputs),
        stop_(std::move(stop)) {}

  void Advance(int64_t /*rows*/, bool /*has_mask*/) override {}

  CorrectResult Finish() override {
    if (stop_ && stop_()) return {.status = CorrectStatus::kStopped};
    return corrector_->Correct(spec_, batch_, outputs_);
  }

 private:
  Corrector* const corrector_;
  const CorrectionSpec spec_;
  const Batch batch_;
  const Outputs outputs_;
  const StopRequest stop_;
};

}  // namespace

void CorrectResult::SetLossCount(double count) {
  sums.loss.count = count;
  if (!partial.maxima.empty()) {
    SetAgreed(Agreed::kLossCount, count, &partial);
  }
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): others keep it.
Turn CorrectRun::TakeTurn(std::function<void()> /*wake*/) { return Turn::kNow; }

CorrectResult Corrector::CorrectUnlessStopped(const CorrectionSpec& spec,
                                              const Batch& batch,
                                              const Outputs& outputs,
                                              const StopRequest& stop) {
  return Begin(spec, batch, outputs, stop)->Finish();
}

std::unique_ptr<CorrectRun> Corrector::Begin(const CorrectionSpec& spec,
                                             const Batch& batch,
                                             const Outputs& outputs,
                                             StopRequest stop) {
  return std::make_unique<WholeRun>(this, spec, batch, outputs,
                                    std::move(stop));
}

std::unique_ptr<CorrectRun> Corrector::BeginInStream(
    const CorrectionSpec& /*spec*/, const Batch& /*batch*/,
    // NOLINTNEXTLINE(performance-unnecessary-value-param): others keep it.
    const Outputs& /*outputs*/, StopRequest /*stop*/, void* /*stream*/) {
  return nullptr;
}

MemoryPlace Corrector::PlaceOf(const void* /*memory*/) const {
  return MemoryPlace::kHost;
}

int64_t Corrector::ScratchBytes(const CorrectionSpec& spec,
                                const Batch& batch) const {
  return LossScratchBytes(MakePlan(spec), batch);
}

void* Corrector::AllocateHost(size_t /*bytes*/) { return nullptr; }

void Corrector::FreeHost(void* /*memory*/) {}

bool Corrector::PinHost(void* /*memory*/, size_t /*bytes*/,
                        bool /*is_read_only*/) {
  return false;
}

void Corrector::UnpinHost(void* /*memory*/) {}

void* Corrector::OpenDeviceMemory(const IpcHandle& /*handle*/,
                                  const DeviceUuid& /*uuid*/,
                                  int64_t* /*bytes*/, std::string* error) {
  *error = "the server computes on no device";
  return nullptr;
}

void* Corrector::OpenDeviceParts(std::span<const int> /*parts*/,
                                 int64_t /*part_bytes*/,
                                 const DeviceUuid& /*uuid*/,
                                 std::string* error) {
  *error = "the server computes on no device";
  return nullptr;
}

void Corrector::CloseDeviceMemory(void* /*memory*/) {}

bool Corrector::CopyFromDevice(void* /*to*/, const void* /*from*/,
                               size_t /*bytes*/, std::string* error) {
  *error = "the server computes on no device";
  return false;
}

}  // namespace counterweight::kernels
