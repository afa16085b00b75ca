// The CPU backend: rows over threads, long rows cut into segments.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/corrector.h"
#include "kernels/cpu/batch_walk.h"
#include "kernels/cpu/choose_kernels.h"
#include "kernels/cpu/isa_kernels.h"
#include "kernels/cpu/sum_parts.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/float_modes.h"
#include "kernels/walk/batch_sums.h"
#include "kernels/walk/loss_batch.h"
#include "kernels/walk/make_plan.h"
#include "kernels/walk/partial_layout.h"

namespace counterweight::kernels {
namespace {

constexpr int64_t kDivideTokens = int64_t{1} << 18;

bool WantsTokens(const Plan& plan, const Outputs& outputs) {
  return plan.loss.active || outputs.weights != nullptr ||
         outputs.keep_mask != nullptr || outputs.token_reasons != nullptr ||
         outputs.sequence_reasons != nullptr;
}

// Bins of a plan. A thread keeps those of its last one: small batches of one
// method follow each other, and a layout takes as long as 1,000 tokens.
PartialBins* LocalBins(const Plan& plan) {
  thread_local CorrectionSpec spec;
  thread_local std::optional<PartialBins> bins;
  if (!bins || !(spec == plan.spec)) {
    bins.emplace(plan);
    spec = plan.spec;
  }
  return &*bins;
}

// The schedules of one walk over the batch. Jobs point to them.
class Schedules {
 public:
  Schedules(const Plan& plan, Purpose purpose, bool writes_gradient)
      : in_order_(ScheduleOf(
            plan, purpose,
            {.any_order = false, .fuses = true, .shortens = writes_gradient})),
        cut_up_(ScheduleOf(plan, purpose, {.any_order = true, .fuses = true})) {
  }

  Job JobFor(const Plan& plan, const Batch& batch, const Outputs& outputs,
             const LossContext& context, double* row_tokens) const {
    return {&plan,      &batch,   &outputs,   &context,
            &in_order_, &cut_up_, row_tokens, /*versions=*/nullptr};
  }

 private:
  const Schedule in_order_;
  const Schedule cut_up_;
};

class CpuRun final : public CorrectRun {
 public:
  CpuRun(const IsaKernels& kernels, ThreadPool* pool,
         const CorrectionSpec& spec, const Batch& batch, const Outputs& outputs,
         StopRequest stop)
      : kernels_(kernels),
        pool_(pool),
        plan_(MakePlan(spec)),
        batch_(batch),
        outputs_(outputs),
        stop_(std::move(stop)),
        schedules_(plan_,
                   WantsTokens(plan_, outputs) ? Purpose::kOutputs
                                               : Purpose::kStatistics,
                   outputs.gradient != nullptr),
        walk_(kernels, pool, plan_, batch_, stop_) {}

  void Advance(int64_t rows, bool has_mask) override {
    const DefaultFloatModes modes;
    if (plan_.loss.active &&
        (!MaskTellsLoss(plan_) || !has_mask || !Prepare())) {
      return;
    }
    walk_.Advance(MainJob(), rows);
  }

  CorrectResult Finish() override {
    // The plan and the last sums are computed on this thread.
    const DefaultFloatModes modes;
    RowRecord total;
    PartialBins* const partial =
        outputs_.partial_sums ? LocalBins(plan_) : nullptr;
    StalenessResult staleness;
    if ((plan_.loss.active && !Prepare()) ||
        !walk_.Finish(MainJob(), &total, partial,
                      MeasuresStaleness() ? &staleness : nullptr)) {
      return {.status = CorrectStatus::kStopped};
    }
    CorrectResult result = MakeResult(plan_, batch_, total, partial);
    result.SetLossCount(loss_.count);
    if (MeasuresStaleness()) TakeStaleness(staleness, &result);
    if (result.status == CorrectStatus::kOk &&
        DividesWeights(plan_, outputs_) &&
        result.sums.weight.normalizer != 1.0) {
      Normalize(result.sums.weight.normalizer);
    }
    return result;
  }

 private:
  // The walks that run before the loss's own.
  class AheadOfLoss final : public LossBackend {
   public:
    explicit AheadOfLoss(CpuRun* run) : run_(*run) {}

    bool Statistics(const LossContext& context, double* row_tokens,
                    RowRecord* total) override {
      const Outputs none;
      const Schedules schedules(run_.plan_, Purpose::kStatistics,
                                /*writes_gradient=*/false);
      return run_.walk_.Finish(
          schedules.JobFor(run_.plan_, run_.batch_, none, context, row_tokens),
          total);
    }

    bool SelectionKeys(const LossContext& context, float* keys) override {
      const Outputs none;
      const Schedules schedules(run_.plan_, Purpose::kSelectionKeys,
                                /*writes_gradient=*/false);
      LossContext with_keys = context;
      with_keys.selection_keys = keys;
      RowRecord ignored;
      return run_.walk_.Finish(
          schedules.JobFor(run_.plan_, run_.batch_, none, with_keys, nullptr),
          &ignored);
    }

   private:
    CpuRun& run_;
  };

  // Returns false if the run was stopped.
  bool Prepare() {
    if (is_prepared_) return true;
    AheadOfLoss ahead(this);
    is_prepared_ = PrepareLoss(plan_, batch_, &ahead, &loss_);
    return is_prepared_;
  }

  Job MainJob() const {
    Job job =
        schedules_.JobFor(plan_, batch_, outputs_, loss_.context, nullptr);
    if (MeasuresStaleness()) job.versions = batch_.versions;
    return job;
  }

  bool MeasuresStaleness() const {
    return batch_.versions != nullptr && plan_.spec.metrics &&
           batch_.versions->trained <= kMostTrained;
  }

  // The versions of tokens that are not finite are to be checked, too, which
  // the walk has not done.
  static void TakeStaleness(const StalenessResult& staleness,
                            CorrectResult* result) {
    if (result->status != CorrectStatus::kOk ||
        result->sums.non_finite_tokens > 0 || staleness.sums.measured == 0) {
      return;
    }
    result->sums.staleness = staleness.sums;
    if (!result->partial.maxima.empty()) {
      AddStaleness(staleness.sums, staleness.bins, &result->partial);
    }
  }

  void Normalize(double divisor) {
    const int64_t positions = batch_.offsets[batch_.num_sequences];
    const int64_t pieces = (positions + kDivideTokens - 1) / kDivideTokens;
    pool_->Run(pieces, [&](int64_t i) {
      const int64_t begin = i * kDivideTokens;
      kernels_.divide(outputs_.weights + begin,
                      std::min(kDivideTokens, positions - begin), divisor);
    });
  }

  const IsaKernels& kernels_;
  ThreadPool* const pool_;
  const Plan plan_;
  const Batch batch_;
  const Outputs outputs_;
  const StopRequest stop_;
  const Schedules schedules_;
  BatchWalk walk_;
  LossBatch loss_;
  bool is_prepared_ = false;
};

class CpuCorrector final : public Corrector {
 public:
  CpuCorrector(int threads, const IsaKernels& kernels)
      : kernels_(kernels), pool_(threads) {}

  CorrectResult Correct(const CorrectionSpec& spec, const Batch& batch,
                        const Outputs& outputs) override {
    return CorrectUnlessStopped(spec, batch, outputs, nullptr);
  }

  CorrectResult CorrectUnlessStopped(const CorrectionSpec& spec,
                                     const Batch& batch, const Outputs& outputs,
                                     const StopRequest& stop) override {
    const DefaultFloatModes modes;
    return CpuRun(kernels_, &pool_, spec, batch, outputs, stop).Finish();
  }

  std::unique_ptr<CorrectRun> Begin(const CorrectionSpec& spec,
                                    const Batch& batch, const Outputs& outputs,
                                    StopRequest stop) override {
    // The plan is computed on this thread.
    const DefaultFloatModes modes;
    return std::make_unique<CpuRun>(kernels_, &pool_, spec, batch, outputs,
                                    std::move(stop));
  }

  std::optional<CorrectResult> SumParts(
      const CorrectionSpec& spec, const Batch& batch, const RowParts& parts,
      const StopRequest& stop, std::vector<PartialSums>* sums) override {
    const DefaultFloatModes modes;
    return SumRowParts(kernels_, &pool_, spec, batch, parts, stop, sums);
  }

  int64_t ScratchBytes(const CorrectionSpec& spec,
                       const Batch& batch) const override {
    const Plan plan = MakePlan(spec);
    return LossScratchBytes(plan, batch) +
           BatchWalk::ScratchBytes(kernels_, plan, batch, pool_.threads());
  }

  BackendInfo Info() const override {
    return {"cpu", kernels_.name, pool_.threads(), {}};
  }

 private:
  const IsaKernels& kernels_;
  ThreadPool pool_;
};

}  // namespace

std::unique_ptr<Corrector> MakeCpuCorrector(int threads, CpuIsa isa) {
  const IsaKernels* kernels = KernelsFor(isa);
  if (kernels == nullptr) return nullptr;
  return std::make_unique<CpuCorrector>(threads, *kernels);
}

}  // namespace counterweight::kernels
