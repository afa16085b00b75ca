#include "kernels/walk/loss_batch.h"

#include <algorithm>
#include <cstring>

#include "kernels/walk/batch_sums.h"
#include "kernels/walk/loss_row.h"
#include "kernels/walk/selection.h"

namespace counterweight::kernels {
namespace {

// Counts of the reductions.
struct Counts {
  std::vector<double> row_tokens;  // [num_sequences]
  double tokens = 0.0;
  double nonempty_rows = 0.0;
  double kept_tokens = 0.0;
  double kept_rows = 0.0;
};

void AddUp(Counts* counts) {
  for (const double tokens : counts->row_tokens) {
    counts->tokens += tokens;
    counts->nonempty_rows += tokens > 0.0 ? 1.0 : 0.0;
  }
}

// Bytes that are not 0, as many as a register of any x86-64 or arm64 holds at a
// time.
int64_t CountTokens(const uint8_t* mask, int64_t size) {
  typedef uint8_t Bytes __attribute__((vector_size(16)));
  // A byte counts that far.
  constexpr int64_t kMostBytes = 255 * static_cast<int64_t>(sizeof(Bytes));
  constexpr auto kStep = static_cast<int64_t>(sizeof(Bytes));
  int64_t count = 0;
  int64_t i = 0;
  while (size - i >= kStep) {
    const int64_t end = i + std::min(size - i, kMostBytes) / kStep * kStep;
    Bytes counts{};
    for (; i < end; i += kStep) {
      Bytes bytes;
      std::memcpy(&bytes, mask + i, sizeof(bytes));
      counts -= reinterpret_cast<Bytes>(bytes != 0);
    }
    for (size_t b = 0; b < sizeof(Bytes); ++b) count += counts[b];
  }
  for (; i < size; ++i) count += mask[i] != 0 ? 1 : 0;
  return count;
}

double CountOf(BatchCount kind, const Batch& batch, const Counts& counts) {
  switch (kind) {
    case BatchCount::kOne:
      return 1.0;
    case BatchCount::kTokens:
      return counts.tokens;
    case BatchCount::kKeptTokens:
      return counts.kept_tokens;
    case BatchCount::kRowTokens:
      return counts.tokens + static_cast<double>(batch.num_sequences) -
             counts.nonempty_rows;
    case BatchCount::kRows:
      return static_cast<double>(batch.num_sequences);
    case BatchCount::kNonemptyRows:
      return counts.nonempty_rows;
    case BatchCount::kKeptRows:
      return counts.kept_rows;
    case BatchCount::kGroups:
      return static_cast<double>(batch.num_groups);
  }
  return 1.0;
}

double FactorOf(const LossReduction& reduction, double count) {
  return count > 0.0 ? reduction.scale / count : 0.0;
}

// Row factors for losses with tokens that need them before their row was
// walked.
std::vector<double> RowFactors(const LossSpec& loss, const Batch& batch,
                               const Counts& counts, double factor) {
  const bool by_group = loss.reduction.row == RowCount::kGroupTokens;
  const bool is_given = loss.reduction.row == RowCount::kGiven;
  if (!by_group && !is_given && !loss.prescales_advantages) return {};
  const auto rows = static_cast<size_t>(batch.num_sequences);
  std::vector<double> group_tokens(static_cast<size_t>(batch.num_groups), 0.0);
  for (size_t i = 0; by_group && i < rows; ++i) {
    if (batch.groups[i] >= 0) {
      group_tokens[static_cast<size_t>(batch.groups[i])] +=
          counts.row_tokens[i];
    }
  }
  std::vector<double> factors(rows, 0.0);
  for (size_t i = 0; i < rows; ++i) {
    if (is_given) {
      factors[i] = factor / batch.row_divisors[i];
    } else if (!by_group) {
      factors[i] = row_factor(loss.reduction, factor,
                              {counts.row_tokens[i], counts.row_tokens[i]});
    } else if (batch.groups[i] >= 0) {
      const double tokens = group_tokens[static_cast<size_t>(batch.groups[i])];
      factors[i] = factor / std::max(tokens, 1.0);
    }
  }
  return factors;
}

void SetFactors(const Plan& plan, const Batch& batch, const Counts& counts,
                LossBatch* out) {
  const LossSpec& loss = plan.loss.spec;
  const double count = CountOf(loss.reduction.count, batch, counts);
  const double kl_count = CountOf(loss.kl.reduction.count, batch, counts);
  out->count = plan.loss.has_kl && kl_count == 0.0 ? 0.0 : count;
  out->context.factor = FactorOf(loss.reduction, count);
  out->context.kl_factor = FactorOf(loss.kl.reduction, kl_count);
  out->row_factors = std::vector<double>();  // gives its memory back first
  out->row_factors = RowFactors(loss, batch, counts, out->context.factor);
  out->context.row_factors =
      out->row_factors.empty() ? nullptr : out->row_factors.data();
}

double Mean(const RowRecord& total, LossColumn column) {
  const double tokens = total.loss_sums[kLossSeen];
  return tokens > 0.0 ? total.loss_sums[column] / tokens : 0.0;
}

bool Select(const Plan& plan, const Batch& batch, const RowRecord& total,
            LossBackend* backend, LossBatch* out) {
  out->context.advantage_mean = Mean(total, kLossAdvantage);
  out->context.log_prob_mean = Mean(total, kLossLogProb);
  std::vector<float> keys(
      static_cast<size_t>(batch.offsets[batch.num_sequences]));
  if (!backend->SelectionKeys(out->context, keys.data())) return false;
  out->selected =
      SelectTokens(plan.loss.spec, batch, keys,
                   static_cast<int64_t>(total.loss_sums[kLossSeen]));
  out->context.selected = out->selected.data();
  return true;
}

}  // namespace

bool LossBackend::CountRows(const Batch& batch, double* row_tokens) {
  for (int64_t i = 0; i < batch.num_sequences; ++i) {
    const int64_t begin = batch.offsets[i];
    row_tokens[i] = static_cast<double>(
        CountTokens(batch.response_mask + begin, batch.offsets[i + 1] - begin));
  }
  return true;
}

int64_t LossScratchBytes(const Plan& plan, const Batch& batch) {
  if (!plan.loss.active) return 0;
  // Tokens and factor of each row, tokens of each group.
  const auto number = static_cast<int64_t>(sizeof(double));
  const int64_t counts = (2 * batch.num_sequences + batch.num_groups) * number;
  if (!plan.loss.selects) return counts;
  return counts + SelectionScratchBytes(batch.offsets[batch.num_sequences]);
}

bool PrepareLoss(const Plan& plan, const Batch& batch, LossBackend* backend,
                 LossBatch* out) {
  if (plan.weight.spec.given_mean > 0.0) {
    out->context.normalizer = plan.weight.spec.given_mean;
  }
  if (batch.num_sequences == 0) {
    SetFactors(plan, batch, Counts{}, out);
    return true;
  }
  Counts counts;
  RowRecord total;
  counts.row_tokens.resize(static_cast<size_t>(batch.num_sequences));
  double* const row_tokens = counts.row_tokens.data();
  if (plan.spec.non_finite == NonFinitePolicy::kDrop
          ? !backend->Statistics(out->context, row_tokens, &total)
          : !backend->CountRows(batch, row_tokens)) {
    return false;
  }
  AddUp(&counts);
  SetFactors(plan, batch, counts, out);
  if (!plan.loss.by_batch) return true;
  if (!backend->Statistics(out->context, counts.row_tokens.data(), &total)) {
    return false;
  }
  counts.kept_tokens = total.token_sums[kColumnKept];
  counts.kept_rows = total.row_sums[kRowKept];
  SetFactors(plan, batch, counts, out);
  out->context.normalizer = Normalizer(plan, batch.num_sequences, total);
  return !plan.loss.selects || Select(plan, batch, total, backend, out);
}

}  // namespace counterweight::kernels
