#include "kernels/cpu/sum_parts.h"

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/batch_walk.h"
#include "kernels/walk/batch_sums.h"
#include "kernels/walk/make_plan.h"
#include "kernels/walk/partial_layout.h"

namespace counterweight::kernels {
namespace {

// Rows by part, and in their order within one.
struct RowsOfParts {
  RowsOfParts(const Batch& batch, const RowParts& parts)
      : ends(static_cast<size_t>(parts.count) + 1) {
    const std::span<const int32_t> of_row(
        parts.of_row, static_cast<size_t>(batch.num_sequences));
    for (const int32_t part : of_row) {
      if (part >= 0) ++ends[static_cast<size_t>(part) + 1];
    }
    for (size_t i = 1; i < ends.size(); ++i) ends[i] += ends[i - 1];
    rows.resize(ends.back());
    std::vector<size_t> next(ends.begin(), ends.end() - 1);
    for (size_t i = 0; i < of_row.size(); ++i) {
      if (of_row[i] < 0) continue;
      rows[next[static_cast<size_t>(of_row[i])]++] = static_cast<int64_t>(i);
    }
  }

  std::span<const int64_t> of(size_t part) const {
    return std::span(rows).subspan(ends[part], ends[part + 1] - ends[part]);
  }

  std::vector<int64_t> rows;
  std::vector<size_t> ends;  // [count + 1], the first is 0
};

}  // namespace

std::optional<CorrectResult> SumRowParts(
    const IsaKernels& kernels, ThreadPool* pool, const CorrectionSpec& spec,
    const Batch& batch, const RowParts& parts, const StopRequest& stop,
    std::vector<PartialSums>* sums) {
  const Plan plan = MakePlan(spec);
  const bool has_versions = batch.versions != nullptr && spec.metrics;
  if (has_versions && batch.versions->trained > kMostTrained) {
    return std::nullopt;
  }
  const Outputs none;
  const LossContext context{};
  const Schedule in_order = ScheduleOf(plan, Purpose::kStatistics,
                                       {.any_order = false, .fuses = true});
  const Schedule cut_up = ScheduleOf(plan, Purpose::kStatistics,
                                     {.any_order = true, .fuses = true});
  const Job job{
      &plan,     &batch,  &none,   &context,
      &in_order, &cut_up, nullptr, has_versions ? batch.versions : nullptr};
  BatchWalk walk(kernels, pool, plan, batch, stop);
  PartialBins bins(plan);
  const RowsOfParts rows(batch, parts);
  sums->resize(static_cast<size_t>(parts.count));
  for (size_t i = 0; i < sums->size(); ++i) {
    RowRecord total;
    StalenessResult staleness;
    if (!walk.WalkRows(job, rows.of(i), &total, &bins,
                       has_versions ? &staleness : nullptr)) {
      return CorrectResult{.status = CorrectStatus::kStopped};
    }
    if (spec.non_finite == NonFinitePolicy::kReject &&
        total.first_bad != kNoBadToken) {
      return MakeResult(plan, batch, total, nullptr);
    }
    PartialSums& part = (*sums)[i];
    part = MakePartialSums(plan, bins.layout,
                           static_cast<int64_t>(rows.of(i).size()), total,
                           bins.bins.data());
    if (!has_versions) continue;
    if (total.token_sums[kColumnNonFinite] > 0 ||
        staleness.sums.measured == 0) {
      return std::nullopt;
    }
    AddStaleness(staleness.sums, staleness.bins, &part);
  }
  return CorrectResult{};
}

}  // namespace counterweight::kernels
