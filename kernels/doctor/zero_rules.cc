// Zeros: tokens where a side has no number. The cause shows in where they lie.
#include <algorithm>
#include <cstdint>

#include "kernels/doctor/examination.h"

namespace counterweight::kernels::doctor {
namespace {

// Zeros of one stream of the pair, 0 or 1.
struct Zeros {
  int64_t all = 0;
  int64_t off = 0;   // the partner is below -0.01
  int64_t far = 0;   // the partner is below -0.5
  int64_t both = 0;  // the partner is 0, too
  // Tokens in (-0.01, 0), and those of them with a partner below -0.5. They are
  // as sure as a zero, and on a confident policy as rarely wrong.
  int64_t sure = 0;
  int64_t sure_far = 0;
  int64_t first_off = -1;  // a token
  // Over rows with something else than zeros.
  int64_t rows = 0;
  int64_t head_zeros = 0, head_rows = 0;
  int64_t tail_zeros = 0, tail_rows = 0;
  int64_t first_head = -1, first_tail = -1;  // tokens
  int64_t empty_rows = 0;
};

Zeros CountZeros(const Examination& e, int side) {
  Zeros zeros;
  const float* const x = e.sample.values(side);
  const float* const y = e.sample.values(1 - side);
  const int64_t n = e.n();
  // Without branches, so that the compiler vectorizes it; a sample's counts
  // fit.
  int32_t all = 0, off = 0, far = 0, both = 0, sure = 0, sure_far = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t is_far = y[i] < -0.5f;
    const int32_t is_zero = x[i] == 0.0f;
    const int32_t is_sure = (x[i] < 0.0f) & (x[i] > -0.01f);
    all += is_zero;
    off += is_zero & (y[i] < -0.01f);
    far += is_zero & is_far;
    both += is_zero & (y[i] == 0.0f);
    sure += is_sure;
    sure_far += is_sure & is_far;
  }
  zeros.all = all;
  zeros.off = off;
  zeros.far = far;
  zeros.both = both;
  zeros.sure = sure;
  zeros.sure_far = sure_far;
  for (int64_t i = 0; far > 0 && zeros.first_off < 0; ++i) {
    if (x[i] == 0.0f && y[i] < -0.5f) zeros.first_off = i;
  }
  for (size_t row = 0; row < e.sample.rows.size(); ++row) {
    const Edges& edges = e.rows.rows[row].edges[side];
    const SampledRow& at = e.sample.rows[row];
    if (edges.is_empty) {
      ++zeros.empty_rows;
      continue;
    }
    ++zeros.rows;
    zeros.head_zeros += edges.head;
    zeros.tail_zeros += edges.tail;
    zeros.head_rows += edges.head > 0;
    zeros.tail_rows += edges.tail > 0;
    if (edges.head > 0 && zeros.first_head < 0) zeros.first_head = at.begin;
    if (edges.tail > 0 && zeros.first_tail < 0) {
      zeros.first_tail = at.end - edges.tail;
    }
  }
  return zeros;
}

void AddEdges(Examination* e, Name name, double confidence, int side,
              int64_t rows, int64_t tokens, int64_t example) {
  Finding& finding = e->Add(name, confidence, e->stream(side));
  finding.evidence = {
      {"rows", static_cast<double>(rows)},
      {"tokens", static_cast<double>(tokens)},
      {"outside", static_cast<double>(e->sample.sampled_outside)}};
  e->SetExample(example, &finding);
}

// Names what the zeros at the ends of rows mean; false: nothing.
bool EdgeRules(Examination* e, int side, const Zeros& zeros) {
  const auto all = static_cast<double>(zeros.all);
  const auto at_edges = static_cast<double>(e->rows.run_edges[side]);
  const double most_rows = std::max(
      2.0, 0.6 * static_cast<double>(std::max<int64_t>(zeros.rows, 1)));
  const bool is_edge = at_edges >= 0.7 * all;
  const bool is_sampling = side == 0 && e->has_rollout();
  const auto outside = static_cast<double>(e->sample.sampled_outside);
  const bool has_outside =
      outside >= 0.6 * static_cast<double>(std::max<int64_t>(zeros.rows, 1));
  if (is_sampling && is_edge &&
      static_cast<double>(zeros.head_rows) >= most_rows &&
      zeros.head_zeros >= zeros.tail_zeros) {
    const bool is_early = has_outside && zeros.head_zeros == zeros.head_rows;
    AddEdges(e, is_early ? Name::kMaskEarly : Name::kMaskCoversPrompt, 0.95,
             side, zeros.head_rows, zeros.head_zeros, zeros.first_head);
    return true;
  }
  if (is_edge && static_cast<double>(zeros.tail_rows) >= most_rows &&
      zeros.tail_zeros > zeros.head_zeros) {
    Name name = Name::kLastTokenMissing;
    if (is_sampling && has_outside) {
      name = Name::kMaskLate;
    } else if (zeros.tail_zeros >= 2 * zeros.tail_rows) {
      name = Name::kMaskCoversPadding;
    } else if (2 * zeros.both >= zeros.all) {
      return true;
    }
    AddEdges(e, name, 0.95, side, zeros.tail_rows, zeros.tail_zeros,
             zeros.first_tail);
    return true;
  }
  if (is_sampling && static_cast<double>(zeros.tail_zeros) >= 0.7 * all &&
      zeros.tail_zeros >= std::max<int64_t>(4, 3 * zeros.tail_rows)) {
    AddEdges(e, Name::kMaskCoversPadding, 0.9, side, zeros.tail_rows,
             zeros.tail_zeros, zeros.first_tail);
    return true;
  }
  return false;
}

void SideRules(Examination* e, int side) {
  if (e->counts.streams[side].zero < 2) return;
  const Zeros zeros = CountZeros(*e, side);
  if (zeros.all < 2) return;
  const auto all = static_cast<double>(zeros.all);
  const auto rows = static_cast<double>(zeros.rows);
  // The same end of nearly every row is a pattern, whatever the partner is.
  const bool is_pattern =
      static_cast<double>(e->rows.run_edges[side]) >= 0.9 * all &&
      zeros.rows >= 4 &&
      static_cast<double>(std::max(zeros.head_rows, zeros.tail_rows)) >=
          0.9 * rows;
  if (!is_pattern &&
      static_cast<double>(zeros.off + zeros.both) < std::max(2.0, 0.1 * all)) {
    return;
  }
  if (EdgeRules(e, side, zeros)) return;
  const double wrong = (static_cast<double>(zeros.sure_far) + 0.5) /
                       static_cast<double>(zeros.sure + 50);
  const bool is_filler =
      zeros.far >= 2 && static_cast<double>(zeros.far) > 5.0 * wrong * all;
  if (!is_filler && (zeros.empty_rows < 1 || zeros.off < 2)) return;
  Finding& finding =
      e->Add(Name::kSentinel, 0.6 + static_cast<double>(zeros.far) / 10.0,
             e->stream(side));
  finding.evidence = {{"value", 0.0},
                      {"share", all / static_cast<double>(e->n())},
                      {"tokens", static_cast<double>(zeros.off)},
                      {"whole_rows", static_cast<double>(zeros.empty_rows)}};
  e->SetExample(zeros.first_off, &finding);
}

void ThirdRule(Examination* e) {
  if (e->counts.streams[2].zero < 2) return;
  const float* const o = e->sample.values(1);
  const float* const c = e->sample.values(2);
  int64_t zeros = 0, far = 0, first = -1;
  for (int64_t i = 0; i < e->n(); ++i) {
    if (c[i] != 0.0f) continue;
    ++zeros;
    if (o[i] >= -0.5f) continue;
    if (far == 0) first = i;
    ++far;
  }
  if (static_cast<double>(far) <
      std::max(2.0, 0.05 * static_cast<double>(zeros))) {
    return;
  }
  Finding& finding = e->Add(Name::kSentinel, 0.9, e->stream(2));
  finding.evidence = {
      {"value", 0.0},
      {"share", static_cast<double>(zeros) / static_cast<double>(e->n())},
      {"tokens", static_cast<double>(far)}};
  e->SetExample(first, &finding);
}

}  // namespace

void ZeroRules(Examination* e) {
  constexpr Names kExplained = {Name::kShifted,         Name::kCountOffByOne,
                                Name::kRowsPermuted,    Name::kProbabilities,
                                Name::kTailRetokenised, Name::kUnmatched};
  constexpr Names kMask = {Name::kMaskCoversPrompt, Name::kMaskEarly,
                           Name::kMaskLate, Name::kMaskCoversPadding};
  if (e->found.meets(kExplained) || e->pair_is_equal()) return;
  for (int side = 0; side < 2; ++side) {
    if (e->is_named[side] || e->found.meets(kMask)) continue;
    SideRules(e, side);
  }
  if (e->has_third()) ThirdRule(e);
}

}  // namespace counterweight::kernels::doctor
