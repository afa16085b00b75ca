#include "server/engine/codec_publication_reader.h"

#include <cmath>
#include <iterator>

#include "kernels/spec.h"
#include "server/engine/bounded_sums.h"
#include "server/engine/codec_labels.h"
#include "server/engine/names.h"

namespace counterweight::server {
namespace {

const char* NameOf(Most most) {
  switch (most) {
    case Most::kMaxTokens:
      return ", the server's --max_tokens";
    case Most::kMaxSequences:
      return ", the server's --max_sequences";
    case Most::kSequences:
      return ", the batch's sequences";
    case Most::kNonemptySequences:
      return ", the batch's sequences with tokens";
    case Most::kTokens:
      return ", the batch's tokens";
    case Most::kOutside:
      return ", those outside the bounds";
  }
  return "";
}

// Largest sum of that many terms below `term`.
bool IsBelow(double value, int64_t count, double term) {
  return std::fabs(value) <= static_cast<double>(count) * term;
}

}  // namespace

void SumsReader::Read(const v1::BatchSums& message) {
  ReadCounts(message);
  if (message.has_drift()) {
    const v1::DriftSums& drift = message.drift();
    Read(kDriftNumbers, drift, "drift.", &sums_.drift);
    CheckTotal("drift.token_histogram",
               ReadHistogram(drift.token_histogram(), "drift.token_histogram",
                             sums_.drift.histogram),
               sums_.tokens, "tokens");
    CheckTotal(
        "drift.sequence_histogram",
        ReadHistogram(drift.sequence_histogram(), "drift.sequence_histogram",
                      sums_.drift.sequence_histogram),
        sums_.nonempty_sequences, "nonempty_sequences");
    CheckHistograms();
  } else {
    Fail("drift", "is required");
  }
  batch_.has_weight = message.has_weight();
  if (batch_.has_weight) ReadWeight(message.weight());
  batch_.has_loss = message.has_loss();
  if (batch_.has_loss) ReadLoss(message.loss());
  ReadRules(message);
  if (message.has_staleness()) ReadStaleness(message.staleness());
}

void SumsReader::ReadCounts(const v1::BatchSums& message) {
  const size_t before = violations_.size();
  Read(kBatchCounts, message, "", &sums_);
  has_counts_ = violations_.size() == before;
  if (!has_counts_) return;
  const bool is_empty = sums_.tokens == 0;
  if (sums_.nonempty_sequences > sums_.tokens ||
      (sums_.nonempty_sequences == 0) != is_empty) {
    Fail("nonempty_sequences",
         Concat("must be at most sums.tokens, ", sums_.tokens,
                ", and 0 only with it; got ", sums_.nonempty_sequences));
  }
}

void SumsReader::ReadWeight(const v1::WeightSums& message) {
  Read(kWeightNumbers, message, "weight.", &sums_.weight);
  Read(kWeightCounts, message, "weight.", &sums_.weight);
  batch_.has_kept_weight = message.has_kept_weight();
  if (message.has_kept_weight() != message.has_kept_weight_squared()) {
    Fail(message.has_kept_weight() ? "weight.kept_weight_squared"
                                   : "weight.kept_weight",
         "is required beside the other one");
  } else if (batch_.has_kept_weight) {
    Read(kKeptWeightNumbers, message, "weight.", &sums_.weight);
  }
  if (sums_.tokens == 0) return;
  if (message.has_max()) {
    CheckNumber("weight.max", message.max(), Range::kAtLeast0);
    sums_.weight.range.max = message.max();
  } else {
    Fail("weight.max", "is required in a batch with tokens");
  }
}

void SumsReader::ReadLoss(const v1::LossSums& message) {
  Read(kLossNumbers, message, "loss.", &sums_.loss);
  Read(kLossCounts, message, "loss.", &sums_.loss);
  batch_.has_kl_penalty = message.has_kl_penalty();
  if (!batch_.has_kl_penalty) return;
  const v1::KlPenaltySums& penalty = message.kl_penalty();
  Read(kKlPenaltyNumbers, penalty, "loss.kl_penalty.", &sums_.loss);
  Read(kKlPenaltyCounts, penalty, "loss.kl_penalty.", &sums_.loss);
}

void SumsReader::ReadRules(const v1::BatchSums& message) {
  if (message.rules_size() > kernels::kMaxRules) {
    Fail("rules", Concat("has ", message.rules_size(), " entries; at most ",
                         kernels::kMaxRules));
    return;
  }
  for (int r = 0; r < message.rules_size(); ++r) {
    const v1::RuleSums& rule = message.rules(r);
    const std::string field = Concat("rules[", r, "].");
    if (!IsLabel(rule.name())) Fail(field + "name", kLabelPattern);
    batch_.rule_names.push_back(rule.name());
    Read(kRuleCounts, rule, field, &sums_.rules[r]);
  }
}

void SumsReader::ReadStaleness(const v1::StalenessSums& message) {
  const size_t before = violations_.size();
  PublishedSums::Staleness& staleness = sums_.staleness;
  staleness.measured = 1;
  Read(kStalenessNumbers, message, "staleness.", &staleness);
  Read(kStalenessCounts, message, "staleness.", &staleness);
  const int64_t known = ReadHistogram(
      message.histogram(), "staleness.histogram", staleness.histogram);
  if (message.buckets_size() != kernels::kNumStalenessBuckets) {
    Fail("staleness.buckets",
         Concat("must have ", kernels::kNumStalenessBuckets, " entries; has ",
                message.buckets_size()));
    return;
  }
  for (int b = 0; b < message.buckets_size(); ++b) {
    const std::string field = Concat("staleness.buckets[", b, "].");
    Read(kBucketNumbers, message.buckets(b), field, &staleness.buckets[b]);
    Read(kBucketCounts, message.buckets(b), field, &staleness.buckets[b]);
  }
  if (violations_.size() != before) return;
  int64_t in_buckets = 0;
  for (const kernels::StalenessBucketSums& bucket : staleness.buckets) {
    in_buckets += bucket.tokens;
  }
  CheckTotal("staleness.buckets", in_buckets + staleness.unknown_tokens,
             sums_.tokens, "tokens, with staleness.unknown_tokens");
  CheckTotal("staleness.histogram", known, in_buckets,
             "the tokens of staleness.buckets");
}

template <class Kernel, class Sums, size_t n>
void SumsReader::Read(const CountField<Kernel, Sums> (&table)[n],
                      const google::protobuf::Message& message,
                      const std::string& prefix, Sums* sums) {
  for (const CountField<Kernel, Sums>& field : table) {
    const int64_t count = message.GetReflection()->GetInt64(
        message, FieldOf(message, field.name));
    // So that a wrong whole does not make its parts wrong.
    const bool is_valid = CheckCount(prefix + field.name, count, field.most);
    sums->*field.sum = is_valid ? count : Largest(field.most);
  }
}

template <class Kernel, class Sums, size_t n>
void SumsReader::Read(const NumberField<Kernel, Sums> (&table)[n],
                      const google::protobuf::Message& message,
                      const std::string& prefix, Sums* sums) {
  for (const NumberField<Kernel, Sums>& field : table) {
    const double value = message.GetReflection()->GetDouble(
        message, FieldOf(message, field.name));
    CheckNumber(prefix + field.name, value, field.range);
    sums->*field.sum = value;
  }
}

template <class Entries, size_t n>
int64_t SumsReader::ReadHistogram(const Entries& entries,
                                  const std::string& field, int64_t (&to)[n]) {
  if (static_cast<size_t>(entries.size()) != n) {
    Fail(field, Concat("must have ", n, " entries; has ", entries.size()));
    return -1;
  }
  int64_t total = 0;
  for (int i = 0; i < entries.size(); ++i) {
    if (!CheckCount(Concat(field, "[", i, "]"), entries[i], Most::kMaxTokens)) {
      return -1;
    }
    to[i] = entries[i];
    total += entries[i];
  }
  return total;
}

void SumsReader::CheckTotal(const std::string& field, int64_t total,
                            int64_t whole, const char* name) {
  if (!has_counts_ || total < 0 || total == whole) return;
  Fail(field, Concat("adds up to ", total, "; must be ", whole, ", ", name));
}

void SumsReader::CheckHistograms() {
  if (!violations_.empty()) return;
  const PublishedSums::Drift& drift = sums_.drift;
  if (!MayHaveLogRatio(drift.log_ratio, drift.histogram)) {
    Fail("drift.log_ratio", "is none that drift.token_histogram allows");
  }
  if (!MayHaveK3(drift.k3, drift.histogram)) {
    Fail("drift.k3", "is more than drift.token_histogram allows");
  }
  if (!MayHaveLogRatio(-drift.log_ppl_difference, drift.sequence_histogram)) {
    Fail("drift.log_ppl_difference",
         "is none that drift.sequence_histogram allows");
  }
}

bool SumsReader::CheckCount(const std::string& field, int64_t count,
                            Most most) {
  const int64_t largest = Largest(most);
  if (count >= 0 && count <= largest) return true;
  Fail(field,
       Concat("must be from 0 to ", largest, NameOf(most), "; got ", count));
  return false;
}

void SumsReader::CheckNumber(const std::string& field, double value,
                             Range range) {
  const char* problem = nullptr;
  switch (range) {
    case Range::kAny:
      break;
    case Range::kFinite:
      if (!std::isfinite(value)) problem = "must be finite";
      break;
    case Range::kOverTokens:
      if (!IsBelow(value, sums_.tokens, 0x1p128)) {
        problem = "must be at most the batch's tokens times 2^128 in size";
      }
      break;
    case Range::kOverSequences:
      if (!IsBelow(value, sums_.nonempty_sequences, 0x1p128)) {
        problem =
            "must be at most the batch's sequences with tokens times 2^128 in "
            "size";
      }
      break;
    case Range::kStaleness:
      if (!(value >= 0.0) || !IsBelow(value, sums_.tokens, 0x1p63)) {
        problem = "must be from 0 to the batch's tokens times 2^63";
      }
      break;
    case Range::kFiniteAtLeast0:
      if (!(value >= 0.0) || !std::isfinite(value)) {
        problem = "must be finite and at least 0";
      }
      break;
    case Range::kAtLeast0:
      if (!(value >= 0.0)) problem = "must be at least 0";
      break;
    case Range::kNumber:
      if (std::isnan(value) || value == -kernels::kUnbounded) {
        problem = "must be a number above -infinity";
      }
      break;
  }
  if (problem != nullptr) Fail(field, problem);
}

int64_t SumsReader::Largest(Most most) const {
  switch (most) {
    case Most::kMaxTokens:
      return limits_.max_tokens;
    case Most::kMaxSequences:
      return limits_.max_sequences;
    case Most::kSequences:
      return sums_.num_sequences;
    case Most::kNonemptySequences:
      return sums_.nonempty_sequences;
    case Most::kTokens:
      return sums_.tokens;
    case Most::kOutside:
      return sums_.weight.tokens_outside;
  }
  return 0;
}

}  // namespace counterweight::server
