#include "server/engine/correction_run.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "server/engine/corrected_tokens.h"
#include "server/engine/derived_tensors.h"
#include "server/engine/row_filter.h"

namespace counterweight::server {
namespace {

std::unique_ptr<kernels::CorrectRun> Begin(kernels::Corrector* corrector,
                                           const kernels::CorrectionSpec& spec,
                                           const kernels::Batch& batch,
                                           const kernels::Outputs& outputs,
                                           kernels::StopRequest stop,
                                           std::optional<void*> stream) {
  if (!stream) return corrector->Begin(spec, batch, outputs, std::move(stop));
  return corrector->BeginInStream(spec, batch, outputs, std::move(stop),
                                  *stream);
}

// A run with another one inside of it, which takes the rows.
class WrappingRun : public kernels::CorrectRun {
 public:
  void Advance(int64_t rows, bool has_mask) override {
    run_->Advance(rows, has_mask);
  }

  kernels::Turn TakeTurn(std::function<void()> wake) override {
    return run_->TakeTurn(std::move(wake));
  }

 protected:
  std::unique_ptr<kernels::CorrectRun> run_;
};

// Outputs::weights are those that the method's last rule would zero.
class WeightsRun final : public WrappingRun {
 public:
  WeightsRun(kernels::Corrector* corrector, const Decoded& decoded,
             const kernels::Batch& batch, const kernels::Outputs& outputs,
             kernels::StopRequest stop, std::optional<void*> stream)
      : corrector_(corrector),
        spec_(decoded.method.spec),
        batch_(batch),
        outputs_{.weights = outputs.weights},
        stop_(std::move(stop)),
        stream_(stream) {
    run_ = Begin(corrector, spec_, batch, outputs, stop_, stream);
    spec_.num_rules -= 1;
    spec_.rules[spec_.num_rules] = {};
    spec_.loss = {};
    spec_.metrics = false;
  }

  kernels::CorrectResult Finish() override {
    kernels::CorrectResult result = run_->Finish();
    if (result.status != kernels::CorrectStatus::kOk) return result;
    run_.reset();
    kernels::CorrectResult of_weights =
        Begin(corrector_, spec_, batch_, outputs_, std::move(stop_), stream_)
            ->Finish();
    if (of_weights.status != kernels::CorrectStatus::kOk) return of_weights;
    return result;
  }

 private:
  kernels::Corrector* const corrector_;
  kernels::CorrectionSpec spec_;
  const kernels::Batch batch_;
  const kernels::Outputs outputs_;
  kernels::StopRequest stop_;
  const std::optional<void*> stream_;
};

std::unique_ptr<kernels::CorrectRun> BeginWeights(
    kernels::Corrector* corrector, const Decoded& decoded,
    const kernels::Batch& batch, const kernels::Outputs& outputs,
    kernels::StopRequest stop, std::optional<void*> stream) {
  if (decoded.method.last_rule_spares_weights && outputs.weights != nullptr) {
    return std::make_unique<WeightsRun>(corrector, decoded, batch, outputs,
                                        std::move(stop), stream);
  }
  return Begin(corrector, decoded.method.spec, batch, outputs, std::move(stop),
               stream);
}

class MeasuredRun final : public WrappingRun {
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
        stop_(std::move(stop)) {
    run_ = BeginWeights(corrector, decoded, WithVersions(), outputs, stop_,
                        stream);
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
};

std::unique_ptr<kernels::CorrectRun> BeginMeasured(
    kernels::Corrector* corrector, const Decoded& decoded,
    const kernels::Batch& batch, const kernels::PolicyVersions& versions,
    const kernels::Outputs& outputs, kernels::StopRequest stop,
    std::optional<void*> stream) {
  if (!versions.came) {
    return BeginWeights(corrector, decoded, batch, outputs, std::move(stop),
                        stream);
  }
  return std::make_unique<MeasuredRun>(corrector, decoded, batch, versions,
                                       outputs, std::move(stop), stream);
}

// Adds CorrectResult::token_metrics.
class TokenMetricsRun final : public WrappingRun {
 public:
  TokenMetricsRun(kernels::Corrector* corrector, const Decoded& decoded,
                  const kernels::Batch& batch,
                  const kernels::PolicyVersions& versions,
                  kernels::Outputs outputs, kernels::StopRequest stop)
      : decoded_(decoded), batch_(batch), stop_(std::move(stop)) {
    const auto positions =
        static_cast<size_t>(batch.offsets[batch.num_sequences]);
    if (outputs.keep_mask == nullptr) {
      own_keep_ = std::make_unique_for_overwrite<uint8_t[]>(positions);
      outputs.keep_mask = own_keep_.get();
    }
    if (outputs.weights == nullptr) {
      own_weights_ = std::make_unique_for_overwrite<float[]>(positions);
      outputs.weights = own_weights_.get();
    }
    keep_ = outputs.keep_mask;
    weights_ = outputs.weights;
    run_ = BeginMeasured(corrector, decoded, batch, versions, outputs, stop_,
                         std::nullopt);
  }

  kernels::CorrectResult Finish() override {
    kernels::CorrectResult result = run_->Finish();
    if (result.status != kernels::CorrectStatus::kOk) return result;
    const CorrectedTokens tokens(batch_, decoded_.method.spec, keep_, weights_,
                                 stop_);
    decoded_.method.token_metrics(tokens, result.sums, &result.token_metrics);
    if (tokens.is_stopped()) result.status = kernels::CorrectStatus::kStopped;
    return result;
  }

 private:
  const Decoded& decoded_;
  const kernels::Batch batch_;
  const kernels::StopRequest stop_;
  const uint8_t* keep_;
  const float* weights_;
  std::unique_ptr<uint8_t[]> own_keep_;
  std::unique_ptr<float[]> own_weights_;
};

std::unique_ptr<kernels::CorrectRun> BeginWithTokens(
    kernels::Corrector* corrector, const Decoded& decoded,
    const kernels::Batch& batch, const kernels::PolicyVersions& versions,
    const kernels::Outputs& outputs, kernels::StopRequest stop) {
  if (!decoded.HasTokenMetrics()) {
    return BeginMeasured(corrector, decoded, batch, versions, outputs,
                         std::move(stop), std::nullopt);
  }
  return std::make_unique<TokenMetricsRun>(corrector, decoded, batch, versions,
                                           outputs, std::move(stop));
}

// A correction after something that the host makes of the whole batch.
class FirstPassRun : public kernels::CorrectRun {
 public:
  FirstPassRun(kernels::Corrector* corrector, const Decoded& decoded,
               const kernels::Batch& batch,
               const kernels::PolicyVersions& versions,
               const kernels::Outputs& outputs, kernels::StopRequest stop)
      : corrector_(corrector),
        decoded_(decoded),
        batch_(batch),
        versions_(versions),
        outputs_(outputs),
        stop_(std::move(stop)) {}

  void Advance(int64_t /*rows*/, bool /*has_mask*/) override {}

 protected:
  kernels::Corrector* const corrector_;
  const Decoded& decoded_;
  const kernels::Batch batch_;
  const kernels::PolicyVersions versions_;
  const kernels::Outputs outputs_;
  kernels::StopRequest stop_;
};

// A correction that reads the method's derived tensors.
class DerivedRun final : public FirstPassRun {
 public:
  using FirstPassRun::FirstPassRun;

  kernels::CorrectResult Finish() override {
    const std::optional<DerivedBatch> made = DeriveTensors(
        decoded_.method.derived, decoded_.method.spec, batch_, stop_);
    if (!made) return {.status = kernels::CorrectStatus::kStopped};
    kernels::CorrectResult result =
        BeginWithTokens(corrector_, decoded_, made->batch, versions_, outputs_,
                        std::move(stop_))
            ->Finish();
    if (made->non_finite && IsJudgedBySources(result)) {
      result.status = kernels::CorrectStatus::kNonFinite;
      result.non_finite = *made->non_finite;
    }
    return result;
  }

 private:
  // True if a number of a derived tensor is to be refused that the correction
  // did not see, because the metrics alone read it, or takes for a sent one.
  bool IsJudgedBySources(const kernels::CorrectResult& result) const {
    if (decoded_.method.spec.non_finite != kernels::NonFinitePolicy::kReject) {
      return false;
    }
    if (result.status != kernels::CorrectStatus::kNonFinite) {
      return result.status == kernels::CorrectStatus::kOk;
    }
    const auto role = static_cast<uint32_t>(result.non_finite.role);
    return (RolesOf(decoded_.method.derived) >> role & 1u) != 0;
  }
};

std::unique_ptr<kernels::CorrectRun> BeginDerived(
    kernels::Corrector* corrector, const Decoded& decoded,
    const kernels::Batch& batch, const kernels::PolicyVersions& versions,
    const kernels::Outputs& outputs, kernels::StopRequest stop) {
  if (!decoded.DerivesTensors()) {
    return BeginWithTokens(corrector, decoded, batch, versions, outputs,
                           std::move(stop));
  }
  return std::make_unique<DerivedRun>(corrector, decoded, batch, versions,
                                      outputs, std::move(stop));
}

// A correction of the sequences that the method's filter leaves.
class FilteredRun final : public FirstPassRun {
 public:
  using FirstPassRun::FirstPassRun;

  kernels::CorrectResult Finish() override {
    const RowFilter& filter = *decoded_.method.row_filter;
    const auto mask = std::make_unique_for_overwrite<uint8_t[]>(
        static_cast<size_t>(batch_.offsets[batch_.num_sequences]));
    const std::optional<RowErrors> errors = FilterRows(
        filter, batch_, decoded_.method.spec.non_finite, stop_, mask.get());
    if (!errors) return {.status = kernels::CorrectStatus::kStopped};
    kernels::Batch left = batch_;
    left.response_mask = mask.get();
    kernels::CorrectResult result =
        BeginDerived(corrector_, decoded_, left, versions_, outputs_,
                     std::move(stop_))
            ->Finish();
    if (result.status == kernels::CorrectStatus::kOk &&
        !decoded_.omits_metrics && !decoded_.returns_sums) {
      filter.report(*errors, &result.token_metrics);
    }
    return result;
  }
};

int64_t LongestRow(const Layout& layout) {
  int64_t longest = 0;
  for (size_t i = 1; i < layout.offsets.size(); ++i) {
    longest = std::max(longest, layout.offsets[i] - layout.offsets[i - 1]);
  }
  return longest;
}

}  // namespace

std::unique_ptr<kernels::CorrectRun> BeginCorrection(
    kernels::Corrector* corrector, const Decoded& decoded,
    const kernels::Batch& batch, const kernels::PolicyVersions& versions,
    const kernels::Outputs& outputs, kernels::StopRequest stop,
    std::optional<void*> stream) {
  if (stream) {
    return BeginMeasured(corrector, decoded, batch, versions, outputs,
                         std::move(stop), stream);
  }
  if (decoded.method.row_filter) {
    return std::make_unique<FilteredRun>(corrector, decoded, batch, versions,
                                         outputs, std::move(stop));
  }
  return BeginDerived(corrector, decoded, batch, versions, outputs,
                      std::move(stop));
}

int64_t PassBytes(const Decoded& decoded) {
  const bool has_metrics = decoded.HasTokenMetrics();
  if (!has_metrics && !decoded.HasFirstPass()) return 0;
  const Layout& layout = decoded.layout;
  int64_t bytes = CorrectedTokens::ScratchBytes(LongestRow(layout));
  if (decoded.method.row_filter) bytes += layout.num_positions;  // a mask
  if (decoded.DerivesTensors()) {
    bytes +=
        DerivedBytes(decoded.method.derived, layout.num_positions) +
        kernels::TurnMeans::Bytes(decoded.method.spec, layout.num_positions);
  }
  if (has_metrics) {
    // Weights and another mask.
    bytes += layout.num_positions * int64_t{sizeof(float) + 1} +
             decoded.method.token_metric_memory.Bytes(layout.num_positions,
                                                      layout.num_sequences);
  }
  return bytes;
}

int64_t VersionBytes(const Decoded& decoded) {
  if (!decoded.versions.came) return 0;
  return static_cast<int64_t>(decoded.versions.spans.capacity() *
                              sizeof(kernels::VersionSpan)) +
         kernels::StalenessScratchBytes(decoded.method.spec,
                                        decoded.tensors.on_device);
}

}  // namespace counterweight::server
