#include "server/engine/correction_run.h"

#include <functional>
#include <optional>
#include <utility>

namespace counterweight::server {
namespace {

std::unique_ptr<kernels::CorrectRun> Begin(kernels::Corrector* corrector,
                                           const Decoded& decoded,
                                           const kernels::Batch& batch,
                                           const kernels::Outputs& outputs,
                                           kernels::StopRequest stop,
                                           std::optional<void*> stream) {
  const kernels::CorrectionSpec& spec = decoded.method.spec;
  if (!stream) return corrector->Begin(spec, batch, outputs, std::move(stop));
  return corrector->BeginInStream(spec, batch, outputs, std::move(stop),
                                  *stream);
}

class MeasuredRun final : public kernels::CorrectRun {
 public:
  MeasuredRun(kernels::Corrector* corrector, const Decoded& decoded,
              const kernels::Batch& batch,
              const kernels::PolicyVersions& versions,
              const kernels::Outputs& outputs, kernels::StopRequest stop,
              std::optional<void*> stream)
      : corrector_(corrector),
        decoded_(decoded),
        batch_(batch),
        versions_(versions),
        stop_(std::move(stop)),
        run_(Begin(corrector, decoded, WithVersions(), outputs, stop_,
                   stream)) {}

  void Advance(int64_t rows, bool has_mask) override {
    run_->Advance(rows, has_mask);
  }

  kernels::Turn TakeTurn(std::function<void()> wake) override {
    return run_->TakeTurn(std::move(wake));
  }

  kernels::CorrectResult Finish() override {
    kernels::CorrectResult result = run_->Finish();
    if (result.status == kernels::CorrectStatus::kOk &&
        result.sums.staleness.measured == 0) {
      kernels::MeasureStaleness(decoded_.method.spec, batch_, versions_,
                                decoded_.tensors.on_device, corrector_, stop_,
                                &result);
    }
    return result;
  }

 private:
  // With those that the walk can measure.
  kernels::Batch WithVersions() const {
    kernels::Batch batch = batch_;
    if (!decoded_.tensors.on_device.versions) batch.versions = &versions_;
    return batch;
  }

  kernels::Corrector* const corrector_;
  const Decoded& decoded_;
  const kernels::Batch batch_;
  const kernels::PolicyVersions versions_;
  const kernels::StopRequest stop_;
  const std::unique_ptr<kernels::CorrectRun> run_;
};

}  // namespace

std::unique_ptr<kernels::CorrectRun> BeginCorrection(
    kernels::Corrector* corrector, const Decoded& decoded,
    const kernels::Batch& batch, const kernels::PolicyVersions& versions,
    const kernels::Outputs& outputs, kernels::StopRequest stop,
    std::optional<void*> stream) {
  if (!versions.came) {
    return Begin(corrector, decoded, batch, outputs, std::move(stop), stream);
  }
  return std::make_unique<MeasuredRun>(corrector, decoded, batch, versions,
                                       outputs, std::move(stop), stream);
}

int64_t VersionBytes(const Decoded& decoded) {
  if (!decoded.versions.came) return 0;
  return static_cast<int64_t>(decoded.versions.spans.capacity() *
                              sizeof(kernels::VersionSpan)) +
         kernels::StalenessScratchBytes(decoded.method.spec,
                                        decoded.tensors.on_device);
}

}  // namespace counterweight::server
