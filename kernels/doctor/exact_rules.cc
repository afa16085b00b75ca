// Facts that counts prove about one stream, or about two that are equal.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/doctor/examination.h"
#include "kernels/doctor/tensor_reader.h"
#include "kernels/math/bits.h"
#include "kernels/math/exp.h"

namespace counterweight::kernels::doctor {
namespace {

// Shares of a sample of at least so many tokens are shares of a batch.
constexpr int64_t kFewTokens = 16;

// Counts over the tokens of the sample.
struct Shares {
  int64_t zero = 0;
  int64_t unit = 0;   // in (0, 1]
  int64_t bf16 = 0;   // not 0, with the low 16 bits 0
  int64_t fp16 = 0;   // not 0, with the low 13 bits 0
  int64_t pairs = 0;  // of neighbours in a row
  int64_t same = 0;   // equal ones, not 0
  // Neighbours by the place of the right one in the row, even or odd.
  int64_t by_place[2] = {};
  int64_t same_by_place[2] = {};
};

// Loops without branches, which the compiler vectorizes.
void CountValues(const float* x, int64_t n, Shares* shares) {
  int32_t zero = 0, unit = 0, bf16 = 0, fp16 = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t nonzero = x[i] != 0.0f;
    zero += 1 - nonzero;
    unit += (x[i] > 0.0f) & (x[i] <= 1.000001f);
    bf16 += nonzero & ((bits_of(x[i]) & 0xffffu) == 0);
    fp16 += nonzero & ((bits_of(x[i]) & 0x1fffu) == 0);
  }
  shares->zero = zero;
  shares->unit = unit;
  shares->bf16 = bf16;
  shares->fp16 = fp16;
}

// Neighbours of one row; `begin` is the first right one.
void CountPairs(const float* x, int64_t begin, int64_t end, int place,
                Shares* shares) {
  int32_t nonzero = 0, same = 0;
  for (int64_t i = begin; i < end; i += 2) {
    const int32_t is_nonzero = x[i] != 0.0f;
    nonzero += is_nonzero;
    same += is_nonzero & (x[i] == x[i - 1]);
  }
  shares->by_place[place] += nonzero;
  shares->same_by_place[place] += same;
  shares->same += same;
}

Shares CountShares(const Sample& sample, const float* x) {
  Shares shares;
  CountValues(x, sample.tokens, &shares);
  for (const SampledRow& row : sample.rows) {
    CountPairs(x, row.begin + 1, row.end, 1, &shares);
    CountPairs(x, row.begin + 2, row.end, 0, &shares);
    shares.pairs += row.size() - 1;
  }
  return shares;
}

double Share(int64_t part, int64_t whole) {
  return static_cast<double>(part) /
         static_cast<double>(std::max<int64_t>(whole, 1));
}

// The first token of the sample that is as `is_so` wants, or -1.
template <class IsSo>
int64_t First(const Examination& e, IsSo is_so) {
  for (int64_t i = 0; i < e.n(); ++i) {
    if (is_so(i)) return i;
  }
  return -1;
}

// The stream that a stream is compared with.
int PartnerOf(int stream) { return stream == 1 ? 0 : 1; }

// Which of the two makes a stream without negative values fit the other one.
bool FitsAsProbabilities(const Examination& e, int stream) {
  const float* const x = e.sample.values(stream);
  const float* const y = e.sample.values(PartnerOf(stream));
  double logs = 0.0, minus = 0.0;
  for (int64_t i = 0; i < e.n(); ++i) {
    const double other = double{y[i]};
    logs += x[i] > 0.0f ? Capped(other - log64(double{x[i]})) : 4.0;
    minus += Capped(other + double{x[i]});
  }
  return logs < minus;
}

void SignRules(Examination* e, int stream, const Shares& shares) {
  const StreamCounts& counts = e->counts.streams[stream];
  const int64_t n = e->counts.tokens;
  const bool has_negative = counts.smallest < 0.0f;
  const Stream name = e->stream(stream);
  const bool is_unit = shares.unit + shares.zero == e->n() &&
                       2 * shares.unit >= e->n() && counts.largest > 0.2f;
  if (!has_negative && is_unit && n >= 8) {
    const bool logs = FitsAsProbabilities(*e, stream);
    Finding& finding =
        e->Add(logs ? Name::kProbabilities : Name::kWrongSign, 1.0, name);
    finding.evidence = {{"largest", double{counts.largest}}};
    e->SetExample(0, &finding);
    e->is_named[stream] = true;
  } else if (!has_negative && n >= 4 &&
             Share(e->CountPositive(stream), n) >= 0.3) {
    e->SetExample(0, &e->Add(Name::kWrongSign, 1.0, name));
    e->is_named[stream] = true;
  }
}

void PositiveRule(Examination* e, int stream) {
  const StreamCounts& counts = e->counts.streams[stream];
  if (!(counts.largest > kPositive) || e->is_named[stream]) return;
  Finding& finding = e->Add(Name::kPositiveLogProbs, 1.0, e->stream(stream));
  finding.evidence = {{"tokens", static_cast<double>(e->CountPositive(stream))},
                      {"largest", double{counts.largest}}};
  const float* const x = e->sample.values(stream);
  e->SetExample(First(*e, [x](int64_t i) { return x[i] > kPositive; }),
                &finding);
}

// Fillers other than 0, which ZeroRules() knows.
constexpr std::array<float, 7> kFillers = {-1.0f,    1.0f,  -100.0f, -1000.0f,
                                           -9999.0f, -1e4f, -1e9f};

void FillerRule(Examination* e, int stream) {
  const double least = std::max(2.0, 0.002 * static_cast<double>(e->n()));
  const StreamCounts& counts = e->counts.streams[stream];
  const bool may_hold = counts.smallest < -99.0f || counts.largest >= 1.0f ||
                        static_cast<double>(counts.minus_one) >= least;
  if (e->is_named[stream] || !may_hold) return;
  const float* const x = e->sample.values(stream);
  const float* const y = e->sample.values(PartnerOf(stream));
  for (const float filler : kFillers) {
    const auto is_filler = [x, y, filler](int64_t i) {
      return x[i] == filler && std::fabs(y[i] - filler) > 0.5f;
    };
    int64_t count = 0;
    for (int64_t i = 0; i < e->n(); ++i) count += is_filler(i);
    if (static_cast<double>(count) < least) continue;
    const double confidence = 0.5 + static_cast<double>(count) / 8.0;
    Finding& finding = e->Add(Name::kSentinel, confidence, e->stream(stream));
    finding.evidence = {{"value", double{filler}},
                        {"share", Share(count, e->n())},
                        {"tokens", static_cast<double>(count)}};
    e->SetExample(First(*e, is_filler), &finding);
    e->is_named[stream] = true;
  }
}

void RepeatRules(Examination* e, int stream, const Shares& shares) {
  const float* const x = e->sample.values(stream);
  const float* const link = e->sample.link();
  const auto repeats = [x, link](int64_t i) {
    return link[i - 1] != 0.0f && x[i] == x[i - 1] && x[i] != 0.0f;
  };
  const double even = Share(shares.same_by_place[0], shares.by_place[0]);
  const double odd = Share(shares.same_by_place[1], shares.by_place[1]);
  const int place = odd >= even ? 1 : 0;
  Name name;
  double share;
  if (shares.pairs >= 8 && Share(shares.same, shares.pairs) >= 0.9) {
    name = Name::kRowConstant;
    share = Share(shares.same, shares.pairs);
  } else if (shares.by_place[place] >= 8 && std::max(even, odd) >= 0.8) {
    name = Name::kRepeatedValues;
    share = std::max(even, odd);
  } else {
    return;
  }
  Finding& finding = e->Add(name, 1.0, e->stream(stream));
  finding.evidence = {{"share", share}};
  e->SetExample(First(*e, repeats), &finding);
  e->is_named[stream] = true;
}

void RoundingRules(Examination* e, int stream, const Shares& shares) {
  const int64_t nonzero = e->n() - shares.zero;
  if (e->streams.tensors[stream].dtype != DType::kF32 || nonzero < kFewTokens) {
    return;
  }
  if (Share(shares.bf16, nonzero) >= 0.999) {
    e->Add(Name::kBf16Rounded, 1.0, e->stream(stream));
  } else if (Share(shares.fp16, nonzero) >= 0.999) {
    e->Add(Name::kFp16Rounded, 1.0, e->stream(stream));
  }
}

// Versions older than the trainer's, at tokens of the sample.
bool IsStale(const Examination& e) {
  const PolicyVersions* const versions = e.batch.versions;
  if (versions == nullptr) return false;
  if (versions->of_positions == nullptr) {
    const auto spans =
        std::span(versions->spans, static_cast<size_t>(versions->num_spans));
    return std::any_of(spans.begin(), spans.end(), [&](const VersionSpan& s) {
      return s.version < versions->trained;
    });
  }
  return First(e, [&](int64_t i) {
           int32_t version;
           __builtin_memcpy(
               &version,
               static_cast<const uint8_t*>(versions->of_positions) +
                   4 * e.sample.place[static_cast<size_t>(i)],
               sizeof(version));
           return version >= 0 && version < versions->trained;
         }) >= 0;
}

void AddEqual(Examination* e, Name name, int pair, int stream) {
  const double share = Share(e->counts.equal[pair], e->counts.tokens);
  Finding& finding = e->Add(name, 1.0, e->stream(stream));
  finding.evidence = {{"share", share}};
  e->SetExample(0, &finding);
  if (name == Name::kOldEqualsRollout && IsStale(*e)) {
    finding.severity = Severity::kError;
  }
}

Name EqualName(InputRole x, InputRole y) {
  if (y == InputRole::kOld) return Name::kOldEqualsRollout;
  return x == InputRole::kRollout ? Name::kCurrentEqualsRollout
                                  : Name::kCurrentEqualsOld;
}

void EqualRules(Examination* e) {
  const auto equal = [e](int pair) {
    return e->counts.tokens >= 4 &&
           Share(e->counts.equal[pair], e->counts.tokens) >= 0.999;
  };
  const InputRole* const roles = e->streams.roles;
  if (equal(0)) AddEqual(e, EqualName(roles[0], roles[1]), 0, 1);
  if (!e->has_third()) return;
  if (equal(1)) {
    AddEqual(e, Name::kCurrentEqualsOld, 1, 2);
  } else if (equal(2)) {
    AddEqual(e, Name::kCurrentEqualsRollout, 2, 2);
  }
}

}  // namespace

void ExactRules(Examination* e) {
  for (int s = 0; s < e->streams.count; ++s) {
    const Shares shares = CountShares(e->sample, e->sample.values(s));
    SignRules(e, s, shares);
    FillerRule(e, s);
    PositiveRule(e, s);
    RepeatRules(e, s, shares);
    RoundingRules(e, s, shares);
  }
  EqualRules(e);
}

}  // namespace counterweight::kernels::doctor
