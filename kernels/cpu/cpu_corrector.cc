// The CPU backend: rows over threads, long rows cut into segments.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/corrector.h"
#include "kernels/cpu/isa_kernels.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/float_modes.h"
#include "kernels/walk/batch_sums.h"
#include "kernels/walk/loss_batch.h"
#include "kernels/walk/row_record.h"

namespace counterweight::kernels {
namespace {

// Bounds the memory of partial sums: 2.6 KB a group.
constexpr int64_t kMaxGroups = 4096;
constexpr int64_t kDivideTokens = int64_t{1} << 18;

struct AlignedFree {
  void operator()(void* p) const { std::free(p); }
};
using ScratchPtr = std::unique_ptr<void, AlignedFree>;

ScratchPtr AllocateScratch(const IsaKernels& kernels) {
  constexpr size_t kAlignment = 64;
  const size_t bytes =
      (kernels.scratch_bytes + kAlignment - 1) / kAlignment * kAlignment;
  return ScratchPtr(std::aligned_alloc(kAlignment, bytes));
}

struct Row {
  int64_t begin;
  int64_t end;
  int64_t segments() const { return SegmentsOf(end - begin); }
  SegmentSpan span(int64_t i) const {
    return {begin + i * kSegmentPositions,
            std::min(end, begin + (i + 1) * kSegmentPositions)};
  }
};

class CpuCorrector final : public Corrector {
 public:
  CpuCorrector(int threads, const IsaKernels& kernels)
      : kernels_(kernels), pool_(threads) {}

  CorrectResult Correct(const CorrectionSpec& spec, const Batch& batch,
                        const Outputs& outputs) override {
    // The plan and the last fold are computed on this thread.
    const DefaultFloatModes modes;
    const Plan plan = MakePlan(spec);
    LossBatch loss;
    if (plan.loss.active) {
      AheadOfLoss ahead(this, plan, batch);
      PrepareLoss(plan, batch, &ahead, &loss);
    }
    const Job job{&plan, &batch, &outputs, &loss.context, false, nullptr};
    const RowRecord total = WalkBatch(job);
    CorrectResult result = MakeResult(plan, batch, total);
    result.sums.loss.count = loss.count;
    // A loss has taken normalized weights, and they were written as such.
    if (result.status == CorrectStatus::kOk && outputs.weights != nullptr &&
        !plan.loss.active && result.sums.weight.normalizer != 1.0) {
      Normalize(result.sums.weight.normalizer, batch, outputs.weights);
    }
    return result;
  }

  BackendInfo Info() const override {
    return {"cpu", kernels_.name, pool_.threads(), {}};
  }

 private:
  // The walks that a loss needs first.
  class AheadOfLoss final : public LossBackend {
   public:
    AheadOfLoss(CpuCorrector* corrector, const Plan& plan, const Batch& batch)
        : corrector_(corrector), plan_(plan), batch_(batch) {}

    bool Statistics(const LossContext& context, double* row_tokens,
                    RowRecord* total) override {
      const Outputs none;
      *total = corrector_->WalkBatch(
          {&plan_, &batch_, &none, &context, true, row_tokens});
      return true;
    }

    bool SelectionKeys(const LossContext& context, float* keys) override {
      const Outputs none;
      LossContext with_keys = context;
      with_keys.selection_keys = keys;
      corrector_->WalkBatch(
          {&plan_, &batch_, &none, &with_keys, false, nullptr});
      return true;
    }

   private:
    CpuCorrector* const corrector_;
    const Plan& plan_;
    const Batch& batch_;
  };

  // One scratch a thread and instruction set, for the thread's lifetime: it is
  // too large for the stack and too often needed for the heap.
  void* LocalScratch() const {
    thread_local const IsaKernels* owner = nullptr;
    thread_local ScratchPtr scratch;
    if (owner != &kernels_) {
      scratch = AllocateScratch(kernels_);
      owner = &kernels_;
    }
    return scratch.get();
  }

  RowRecord WalkBatch(const Job& job) {
    if (job.batch->num_sequences > 0) return WalkRows(job);
    RowRecord nothing{};
    clear(*job.plan, nothing);
    return nothing;
  }

  RowRecord WalkRows(const Job& job) {
    const int64_t rows = job.batch->num_sequences;
    int64_t group = 1;
    while (rows > group * kMaxGroups) group *= 2;
    const int64_t groups = (rows + group - 1) / group;
    std::vector<std::unique_ptr<RowRecord>> long_rows = WalkLongRows(job);
    std::vector<const RowRecord*> done;
    if (!long_rows.empty()) {
      for (const auto& row : long_rows) done.push_back(row.get());
    }
    std::vector<RowRecord> records(static_cast<size_t>(groups));
    pool_.Run(groups, [&](int64_t g) {
      const int64_t first = g * group;
      const int64_t last = std::min(rows, first + group);
      kernels_.walk_rows(job, first, last, LocalScratch(),
                         done.empty() ? nullptr : &done[first],
                         &records[static_cast<size_t>(g)]);
    });
    RowRecord total;
    kernels_.fold_rows(*job.plan, records.data(), groups, LocalScratch(),
                       &total);
    return total;
  }

  // [num_sequences] records of the rows that are cut up, null for the others;
  // empty if there is none.
  std::vector<std::unique_ptr<RowRecord>> WalkLongRows(const Job& job) {
    std::vector<std::unique_ptr<RowRecord>> records;
    const Batch& batch = *job.batch;
    for (int64_t i = 0; i < batch.num_sequences; ++i) {
      const Row row{batch.offsets[i], batch.offsets[i + 1]};
      if (row.segments() <= kMaxShortRowSegments) continue;
      records.resize(static_cast<size_t>(batch.num_sequences));
      records[static_cast<size_t>(i)] = std::make_unique<RowRecord>();
      WalkLongRow(job, i, row, records[static_cast<size_t>(i)].get());
    }
    return records;
  }

  void WalkLongRow(const Job& job, int64_t index, const Row& row,
                   RowRecord* out) {
    const Plan& plan = *job.plan;
    const int64_t segments = row.segments();
    std::vector<SegmentRecord> records(static_cast<size_t>(segments));
    std::vector<PrefixBase> bases(
        static_cast<size_t>(segments * plan.num_prefixes));
    const auto bases_of = [&](int64_t i) {
      return bases.data() + i * plan.num_prefixes;
    };
    RowState state = kernels_.initial_state(job, index);
    for (int pass = 0; pass < plan.passes; ++pass) {
      pool_.Run(segments, [&](int64_t i) {
        kernels_.walk_statistics(job, row.span(i), state, bases_of(i),
                                 LocalScratch(),
                                 &records[static_cast<size_t>(i)]);
      });
      state = kernels_.settle_row(job, index, records.data(), segments,
                                  bases.data(), LocalScratch(),
                                  pass + 1 == plan.passes ? out : nullptr);
    }
    if (job.statistics_only) return;
    std::vector<LossRecord> losses(
        plan.loss.active ? static_cast<size_t>(segments) : 0);
    std::vector<uint32_t> reasons(static_cast<size_t>(segments));
    const auto walk = [&](bool loss_only) {
      pool_.Run(segments, [&](int64_t i) {
        const auto at = static_cast<size_t>(i);
        reasons[at] = kernels_.walk_outputs(
            job, row.span(i), state, bases_of(i), loss_only, LocalScratch(),
            losses.empty() ? nullptr : &losses[at]);
      });
      if (losses.empty()) return;
      kernels_.settle_loss(job, losses.data(), segments, &state, out);
    };
    if (plan.loss.active && plan.loss.hands_back) walk(true);
    walk(false);
    if (job.outputs->sequence_reasons == nullptr) return;
    uint32_t all = 0;
    for (const uint32_t segment : reasons) all |= segment;
    job.outputs->sequence_reasons[index] = static_cast<uint16_t>(all);
  }

  void Normalize(double divisor, const Batch& batch, float* weights) {
    const int64_t positions = batch.offsets[batch.num_sequences];
    const int64_t pieces = (positions + kDivideTokens - 1) / kDivideTokens;
    pool_.Run(pieces, [&](int64_t i) {
      const int64_t begin = i * kDivideTokens;
      kernels_.divide(weights + begin,
                      std::min(kDivideTokens, positions - begin), divisor);
    });
  }

  const IsaKernels& kernels_;
  ThreadPool pool_;
};

const IsaKernels* KernelsFor(CpuIsa isa) {
#if defined(__x86_64__)
  const bool v3 = __builtin_cpu_supports("avx2") &&
                  __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") &&
                  __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") &&
                  __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
#else
  constexpr bool v3 = false;
  constexpr bool v4 = false;
#endif
  switch (isa) {
    case CpuIsa::kBest:
      return v4 ? V4Kernels() : v3 ? V3Kernels() : GenericKernels();
    case CpuIsa::kV3:
      return v3 ? V3Kernels() : nullptr;
    case CpuIsa::kV4:
      return v4 ? V4Kernels() : nullptr;
    case CpuIsa::kGeneric:
      return GenericKernels();
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Corrector> MakeCpuCorrector(int threads, CpuIsa isa) {
  const IsaKernels* kernels = KernelsFor(isa);
  if (kernels == nullptr) return nullptr;
  return std::make_unique<CpuCorrector>(threads, *kernels);
}

}  // namespace counterweight::kernels
