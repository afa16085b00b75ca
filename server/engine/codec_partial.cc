#include "server/engine/codec_partial.h"

#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/math/exact_sum.h"
#include "kernels/surrogates/list.h"
#include "server/engine/codec.h"
#include "server/engine/codec_calm_bound.h"
#include "server/engine/codec_enums.h"
#include "server/engine/codec_warnings.h"
#include "server/engine/message_bytes.h"
#include "server/engine/names.h"

namespace counterweight::server {
namespace {

using kernels::Agreed;
using kernels::BatchCount;
using kernels::PartialSums;

// Bits of PartialIdentity::facts.
enum Fact : uint64_t {
  kRollout = 1 << 0,
  kOld = 1 << 1,
  kCurrent = 1 << 2,
  kRef = 1 << 3,
  kAdvantages = 1 << 4,
  kGroupIds = 1 << 5,
  kWantsLoss = 1 << 6,
  kGlobalCounts = 1 << 7,
  kOmitsLoss = 1 << 8,
  kOmitsMetrics = 1 << 9,
  kFirstOfPolicy = 1 << 10,  // two bits: NonFinitePolicy
  kMeasures = 1 << 12,  // CorrectionSpec::metrics, also without kOmitsMetrics
  kAllFacts = (1 << 13) - 1
};

// Whole numbers of float64 are exact below it, and so are sums of a few.
constexpr double kMostCount = 0x1p52;

uint64_t HashOf(std::string_view bytes) {
  // FNV-1a.
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  }
  return hash >> 12;
}

uint64_t HashOf(const v1::Method& method) {
  return HashOf(Concat(kernels::kNumericsVersion, ":", MessageBytes(method)));
}

bool IsCount(double x) {
  return x >= 0.0 && x <= kMostCount && x == std::floor(x);
}

// The numbers that are converted to integers.
bool HasCounts(const PartialSums& sums) {
  for (const double x : sums.whole) {
    if (!IsCount(x)) return false;
  }
  for (const Agreed what :
       {Agreed::kMethod, Agreed::kFacts, Agreed::kWidth, Agreed::kVersions}) {
    const std::optional<double> value = AgreedOn(sums, what);
    if (value && !IsCount(*value)) return false;
  }
  const bool has_versions = AgreedOn(sums, Agreed::kVersions) == 1.0;
  return !has_versions || IsCount(sums.maxima.back());
}

bool Has(const PartialSums& sums, Fact fact) {
  const double facts = AgreedOn(sums, Agreed::kFacts).value_or(0.0);
  return (static_cast<uint64_t>(facts) & fact) != 0;
}

RequestFacts FactsOf(uint64_t facts, const PartialSums& sums,
                     bool* reads_width) {
  RequestFacts of = server::FactsOf(facts);
  of.num_sequences = {
      static_cast<int64_t>(sums.whole[kernels::kPartialSequences])};
  of.padded_length = {
      static_cast<int64_t>(AgreedOn(sums, Agreed::kWidth).value_or(0.0)),
      reads_width};
  return of;
}

// The counts by which the loss of a method divides.
class CountsOfStep {
 public:
  CountsOfStep(const Method& method, const kernels::BatchSums& sums,
               v1::MergeSumsResponse* response)
      : spec_(method.spec),
        use_(method.counts_use),
        sums_(sums),
        response_(*response) {}

  void Write() {
    if (spec_.loss.surrogate != kernels::Surrogate::kNone) {
      if (!use_.refusal.empty()) return Refuse(use_.refusal);
      if (use_.given_count.empty()) {
        WriteCount(spec_.loss.reduction.count);
        if (spec_.loss.kl.estimator != kernels::KlEstimator::kNone) {
          WriteCount(spec_.loss.kl.reduction.count);
        }
      }
    }
    if (spec_.weight.normalize) {
      counts()->set_weight_mean(sums_.weight.normalizer);
    }
  }

 private:
  v1::GlobalCounts* counts() { return response_.mutable_counts(); }

  void Refuse(const std::string& reason) {
    response_.set_counts_refusal(reason);
    response_.clear_counts();
  }

  void WriteCount(BatchCount count) {
    switch (count) {
      case BatchCount::kOne:
        return;
      case BatchCount::kTokens:
        return counts()->set_num_tokens(sums_.tokens);
      case BatchCount::kKeptTokens:
        return counts()->set_num_kept_tokens(sums_.kept_tokens);
      case BatchCount::kRowTokens:
        return counts()->set_num_tokens(sums_.tokens + sums_.num_sequences -
                                        sums_.nonempty_sequences);
      case BatchCount::kRows:
        return counts()->set_num_sequences(sums_.num_sequences);
      case BatchCount::kNonemptyRows:
        return counts()->set_num_sequences(sums_.nonempty_sequences);
      case BatchCount::kKeptRows:
        return counts()->set_num_kept_sequences(sums_.kept_sequences);
      case BatchCount::kGroups:
        return Refuse(
            "a mean over groups needs all sequences of a group, and all groups "
            "of the step, in one request");
    }
  }

  const kernels::CorrectionSpec& spec_;
  const CountsUse& use_;
  const kernels::BatchSums& sums_;
  v1::MergeSumsResponse& response_;
};

// The step's counts for the method as a whole, whatever the parts left out.
void WriteCounts(const v1::Method& method, const PartialSums& sums,
                 const kernels::BatchSums& finished,
                 v1::MergeSumsResponse* response) {
  bool reads_width = false;
  const auto facts =
      static_cast<uint64_t>(AgreedOn(sums, Agreed::kFacts).value_or(0.0));
  constexpr uint64_t kOfLosses =
      kCurrent | kAdvantages | kGroupIds | kWantsLoss | kGlobalCounts;
  const Result<Method> whole =
      ReadMethod(method, FactsOf(facts | kOfLosses, sums, &reads_width));
  if (whole.ok()) return CountsOfStep(whole.value, finished, response).Write();
  const Violation& wrong = *whole.violations.begin();
  response->set_counts_refusal(Concat(wrong.field, ": ", wrong.description));
}

Result<PartialSums> ReadParts(const v1::MergeSumsRequest& request) {
  Result<PartialSums> all;
  if (request.parts_size() == 0) {
    return {{}, {{"parts", "is required: the sums of one part or more"}}};
  }
  for (int i = 0; i < request.parts_size(); ++i) {
    const std::string field = Concat("parts[", i, "]");
    Result<PartialSums> part = ReadPartial(request.parts(i), field);
    if (!part.ok()) {
      all.violations.Append(part.violations);
    } else if (i == 0) {
      all.value = std::move(part.value);
    } else if (!all.ok()) {
      continue;
    } else if (!HaveSameSizes(part.value, all.value)) {
      all.violations.push_back(
          {field,
           "has other lengths than parts[0]: sums are of one method, all "
           "with versions of tokens or none"});
    } else {
      Merge(part.value, &all.value);
    }
  }
  if (!all.ok()) return all;
  const bool is_one = AgreedOn(all.value, Agreed::kMethod) &&
                      AgreedOn(all.value, Agreed::kFacts);
  if (!is_one) {
    all.violations.push_back(
        {"parts",
         "are not of one method: parameters, tensors, options and "
         "numerics_version of all requests must be the same"});
  }
  return all;
}

}  // namespace

uint64_t FactBitsOf(const v1::CorrectRequest& request,
                    const RequestFacts& facts) {
  uint64_t bits = 0;
  const auto add = [&](bool has, Fact fact) {
    if (has) bits |= fact;
  };
  add(facts.has_rollout_log_probs, kRollout);
  add(facts.has_old_log_probs, kOld);
  add(facts.has_current_log_probs, kCurrent);
  add(facts.has_ref_log_probs, kRef);
  add(facts.has_advantages, kAdvantages);
  add(facts.has_group_ids, kGroupIds);
  add(facts.wants_loss, kWantsLoss);
  add(facts.has_global_counts, kGlobalCounts);
  add(request.omit_loss(), kOmitsLoss);
  add(request.omit_metrics(), kOmitsMetrics);
  // A client that names the default has sums of the same kind.
  const auto policy =
      request.non_finite_policy() == v1::NON_FINITE_POLICY_UNSPECIFIED
          ? v1::NON_FINITE_POLICY_REJECT
          : request.non_finite_policy();
  return bits | (static_cast<uint64_t>(policy) & 3) * kFirstOfPolicy;
}

bool AreFacts(uint64_t bits) { return bits <= kAllFacts; }

RequestFacts FactsOf(uint64_t bits) {
  const auto has = [&](Fact fact) { return (bits & fact) != 0; };
  RequestFacts of;
  of.has_rollout_log_probs = has(kRollout);
  of.has_old_log_probs = has(kOld);
  of.has_current_log_probs = has(kCurrent);
  of.has_ref_log_probs = has(kRef);
  of.has_advantages = has(kAdvantages);
  of.has_group_ids = has(kGroupIds);
  of.wants_loss = has(kWantsLoss);
  of.has_global_counts = has(kGlobalCounts);
  return of;
}

bool OmitsLoss(uint64_t bits) { return (bits & kOmitsLoss) != 0; }

PartialIdentity IdentityOf(const v1::CorrectRequest& request,
                           const RequestFacts& facts, const Method& method,
                           int64_t width) {
  PartialIdentity identity;
  if (!request.partial_sums() && !request.labels().has_step()) return identity;
  identity.facts = FactBitsOf(request, facts);
  if (method.spec.metrics) identity.facts |= kMeasures;
  identity.method = HashOf(request.method());
  identity.width = width;
  return identity;
}

void Identify(const PartialIdentity& identity, PartialSums* sums) {
  SetAgreed(Agreed::kMethod, static_cast<double>(identity.method), sums);
  SetAgreed(Agreed::kFacts, static_cast<double>(identity.facts), sums);
  SetAgreed(Agreed::kWidth, static_cast<double>(identity.width), sums);
}

void EncodePartial(const PartialSums& sums, v1::PartialSums* message) {
  const auto add = [&](const std::vector<double>& numbers) {
    message->mutable_sums()->Add(numbers.begin(), numbers.end());
  };
  add(sums.whole);
  add(sums.narrow);
  add(sums.wide);
  message->mutable_maxima()->Add(sums.maxima.begin(), sums.maxima.end());
}

Result<PartialSums> ReadPartial(const v1::PartialSums& message,
                                const std::string& field) {
  const auto refuse = [&](std::string_view part, std::string_view reason) {
    return Result<PartialSums>{{},
                               {{Concat(field, part), std::string(reason)}}};
  };
  PartialSums sums;
  sums.maxima.assign(message.maxima().begin(), message.maxima().end());
  constexpr std::string_view kTheirs =
      "is none that this service makes: it must be what an answer's "
      "sums were, or what an all-reduce made of several of one method";
  if (sums.maxima.size() < size_t{2} * kernels::kNumAgreed) {
    return refuse(".maxima", kTheirs);
  }
  const auto size = static_cast<size_t>(message.sums_size());
  const std::optional<double> whole = AgreedOn(sums, Agreed::kNumWhole);
  const std::optional<double> narrow = AgreedOn(sums, Agreed::kNumNarrow);
  if (!whole || !narrow || !IsCount(*whole) || !IsCount(*narrow) ||
      *whole < static_cast<double>(kernels::kNumPartialWhole) ||
      *whole + *narrow > static_cast<double>(size)) {
    return refuse(".maxima", kTheirs);
  }
  const auto num_whole = static_cast<size_t>(*whole);
  const auto num_narrow = static_cast<size_t>(*narrow);
  if (num_narrow % kernels::kBins != 0 ||
      (size - num_whole - num_narrow) % kernels::kAllBins != 0) {
    return refuse(".sums", kTheirs);
  }
  const double* const numbers = message.sums().data();
  sums.whole.assign(numbers, numbers + num_whole);
  sums.narrow.assign(numbers + num_whole, numbers + num_whole + num_narrow);
  sums.wide.assign(numbers + num_whole + num_narrow, numbers + size);
  if (!HasCounts(sums)) return refuse(".sums", kTheirs);
  if (sums.whole[kernels::kPartialVectors] > kernels::kMostAddends) {
    return refuse(".sums",
                  Concat("was added of more than ", kernels::kMostAddends,
                         " vectors, which rounds; merge them in between"));
  }
  Settle(&sums);
  return {std::move(sums), {}};
}

Result<Method> ReadMethodOf(const v1::Method& method, const PartialSums& sums,
                            const std::string& parts) {
  if (HasCalmBound(method)) return {{}, {{"method", kNoCalmBoundHere}}};
  if (AgreedOn(sums, Agreed::kMethod) != static_cast<double>(HashOf(method))) {
    return {{},
            {{"method", Concat("is not the method of ", parts,
                               ", with the parameters of its requests")}}};
  }
  const std::optional<double> facts = AgreedOn(sums, Agreed::kFacts);
  const auto bits = static_cast<uint64_t>(facts.value_or(kAllFacts + 1));
  if (!AreFacts(bits)) return {{}, {{parts, "is of no request"}}};
  bool reads_width = false;
  Result<Method> read = ReadMethod(method, FactsOf(bits, sums, &reads_width));
  if (!read.ok()) return read;
  if (reads_width && !AgreedOn(sums, Agreed::kWidth)) {
    return {{},
            {{parts,
              "is of batches of different widths, on which this method's "
              "numbers depend; give all of them one padded_length"}}};
  }
  kernels::CorrectionSpec& spec = read.value.spec;
  if (OmitsLoss(bits)) spec.loss = {};
  spec.metrics = (bits & kMeasures) != 0;
  const bool has_versions = AgreedOn(sums, Agreed::kVersions) == 1.0;
  if (!HaveSameSizes(sums, kernels::NoSums(spec, has_versions))) {
    read.violations.push_back({parts, "is not of this method"});
  }
  return read;
}

Violations MergeSums(const v1::MergeSumsRequest& request,
                     v1::MergeSumsResponse* response) {
  const Result<PartialSums> all = ReadParts(request);
  if (!all.ok()) return all.violations;
  const PartialSums& sums = all.value;
  EncodePartial(sums, response->mutable_sums());
  if (!request.has_method()) return {};
  Result<Method> method = ReadMethodOf(request.method(), sums, "parts");
  if (!method.ok()) return method.violations;
  const double coupled = sums.whole[kernels::kPartialCoupled];
  if (coupled > 0.0 && sums.whole[kernels::kPartialParts] > 1.0) {
    return {{"parts",
             "have losses that do not add up, as each divided by its own "
             "counts; give the requests global_counts or omit_loss"}};
  }
  kernels::CorrectResult finished;
  finished.sums = kernels::SumsOf(method.value.spec, sums);
  Decoded decoded;
  decoded.warnings = std::move(method.value.warnings);
  for (std::string& warning : WarnOfTokenMetrics(method.value, true, false)) {
    decoded.warnings.push_back(std::move(warning));
  }
  decoded.method = std::move(method.value);
  decoded.omits_metrics = Has(sums, kOmitsMetrics);
  Violations violations = Encode(decoded, finished, response->mutable_answer());
  if (!violations.empty()) return violations;
  response->mutable_answer()->set_numerics_version(kernels::kNumericsVersion);
  WriteCounts(request.method(), sums, finished.sums, response);
  return {};
}

}  // namespace counterweight::server
