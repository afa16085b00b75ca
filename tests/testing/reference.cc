#include "tests/testing/reference.h"

#include <utility>

#include "tests/testing/reference_loss.h"
#include "tests/testing/reference_rules.h"
#include "tests/testing/reference_sums.h"
#include "tests/testing/reference_weights.h"

namespace counterweight::kernels {
namespace {

// The weights that the caller gets for one row.
std::vector<double> FinalWeights(const CorrectionSpec& spec,
                                 const ReferenceRow& row,
                                 const RowVerdict& verdict,
                                 const RowWeights& weights, double normalizer) {
  std::vector<double> result(row.size(), 0.0);
  for (int64_t t = 0; t < row.size(); ++t) {
    if (!row.counts[t] || verdict.zeroed[t]) continue;
    result[t] = spec.weight.level == Level::kNone
                    ? 1.0
                    : weights.bounded[t] / normalizer;
  }
  return result;
}

void AppendOutputs(const RowResult& row, ReferenceResult& result) {
  uint16_t of_row = 0;
  for (int64_t t = 0; t < row.row.size(); ++t) {
    uint16_t reasons = row.row.dropped[t] ? kReasonNonFinite : 0;
    for (size_t r = 0; r < row.verdict.rules.size(); ++r)
      if (row.verdict.rules[r].fired[t])
        reasons = static_cast<uint16_t>(reasons | 1u << r);
    of_row |= reasons;
    result.token_reasons.push_back(reasons);
    result.keep_mask.push_back(row.verdict.keep[t]);
    result.weights.push_back(row.final_weights[t]);
  }
  result.sequence_reasons.push_back(of_row);
}

void AppendSums(const CorrectionSpec& spec, const RowResult& row,
                ReferenceResult& result, Margin& margin) {
  BatchSums& value = result.sums;
  BatchSums& magnitude = result.magnitudes;
  AddCounts(row, value);
  PeerCorrectionSums& peers = value.peers.correction;
  PeerCorrectionSums& peer_magnitudes = magnitude.peers.correction;
  AddDrift(spec, row.row, {value.drift, magnitude.drift},
           {peers, peer_magnitudes}, margin);
  AddProbability(spec.drift_source, row.row,
                 {peers.probability, peer_magnitudes.probability});
  if (spec.weight.level != Level::kNone)
    AddWeights(spec.weight, row.row, row.weights, row.verdict,
               {value.weight, magnitude.weight}, {peers, peer_magnitudes},
               margin);
  for (int r = 0; r < spec.num_rules; ++r)
    AddRule(spec.rules[r], row.verdict.rules[r],
            {value.rules[r], magnitude.rules[r]},
            {peers.rules[r], peer_magnitudes.rules[r]});
}

void AppendLoss(const CorrectionSpec& spec, const Batch& batch,
                const CorrectedRows& corrected, ReferenceResult& result,
                Margin& margin) {
  if (spec.loss.surrogate == Surrogate::kNone) return;
  ReferenceLoss loss = LossOf(spec, batch, corrected, margin);
  result.sums.loss = loss.sums;
  result.magnitudes.loss = loss.magnitudes;
  result.sums.peers.loss = loss.peers;
  result.magnitudes.peers.loss = loss.peer_magnitudes;
  result.gradient = std::move(loss.gradient);
  result.gradient_size = std::move(loss.gradient_size);
  result.loss_rows = std::move(loss.rows);
}

}  // namespace

ReferenceResult Reference(const CorrectionSpec& spec, const Batch& batch) {
  ReferenceResult result;
  result.sums = EmptySums();
  ReferenceInputs inputs = ReadInputs(spec, batch);
  if (spec.non_finite == NonFinitePolicy::kReject && inputs.first_non_finite) {
    result.refused = inputs.first_non_finite;
    return result;
  }
  PrescaleAdvantages(spec.loss, batch, inputs.rows);
  Margin margin;
  std::vector<RowVerdict> verdicts;
  std::vector<RowWeights> weights;
  for (const ReferenceRow& row : inputs.rows) {
    verdicts.push_back(ApplyRules(spec, row, margin));
    const Mask& left = verdicts.back().left_after[spec.weight.after_rule];
    weights.push_back(WeighRow(spec.weight, row, left, margin));
  }
  const double normalizer =
      Normalizer(spec.weight, inputs.rows, weights, margin);
  result.sums.weight.normalizer = normalizer;
  std::vector<std::vector<double>> final_weights;
  for (size_t i = 0; i < inputs.rows.size(); ++i) {
    final_weights.push_back(FinalWeights(spec, inputs.rows[i], verdicts[i],
                                         weights[i], normalizer));
    const RowResult row{inputs.rows[i], verdicts[i], weights[i],
                        final_weights[i]};
    AppendOutputs(row, result);
    AppendSums(spec, row, result, margin);
  }
  AppendLoss(spec, batch, {inputs.rows, verdicts, final_weights}, result,
             margin);
  ForgetPeers(spec, result.sums.peers);
  result.margin = margin.smallest();
  result.distance = margin.smallest_distance();
  return result;
}

}  // namespace counterweight::kernels
