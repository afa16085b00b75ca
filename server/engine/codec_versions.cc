#include "server/engine/codec_versions.h"

#include <string>
#include <utility>

#include "kernels/averages.h"
#include "server/engine/names.h"

namespace counterweight::server {
namespace {

class SpanReader {
 public:
  SpanReader(const Result<Layout>& layout, Result<Versions>* result)
      : layout_(layout), result_(*result) {}

  void Read(const v1::VersionSpan& span, int index) {
    index_ = index;
    const bool is_ordered =
        span.sequence() > sequence_ ||
        (span.sequence() == sequence_ && span.start() >= end_);
    if (span.start() < 0 || span.end() <= span.start()) {
      Fail("end", Concat("must be above start, and start >= 0, but they are ",
                         span.end(), " and ", span.start()));
    } else if (span.sequence() < 0) {
      Fail("sequence", Concat("must be >= 0; got ", span.sequence()));
    } else if (layout_.ok()) {
      CheckRow(span);
    }
    if (!is_ordered) {
      Fail("start",
           "must not lie before the end of the span before: spans ascend by "
           "sequence and start, and do not overlap");
    }
    if (span.policy_version() < 0) {
      Fail("policy_version",
           Concat("must be >= 0; got ", span.policy_version(),
                  "; leave out positions whose version is unknown"));
    }
    sequence_ = span.sequence();
    end_ = span.end();
    if (result_.ok()) {
      result_.value.spans.push_back(
          {span.sequence(), span.start(), span.end(), span.policy_version()});
    }
  }

 private:
  void CheckRow(const v1::VersionSpan& span) {
    const Layout& layout = layout_.value;
    if (span.sequence() >= layout.num_sequences) {
      Fail("sequence", Concat("is ", span.sequence(), "; the layout has ",
                              layout.num_sequences, " sequences"));
      return;
    }
    const auto row = static_cast<size_t>(span.sequence());
    const int64_t length = layout.offsets[row + 1] - layout.offsets[row];
    if (span.end() > length) {
      Fail("end", Concat("is ", span.end(), "; sequence ", span.sequence(),
                         " has ", length, " positions"));
    }
  }

  void Fail(const char* field, std::string description) {
    result_.violations.push_back({Concat("version_spans[", index_, "].", field),
                                  std::move(description)});
  }

  const Result<Layout>& layout_;
  Result<Versions>& result_;
  int index_ = 0;
  int64_t sequence_ = -1;
  int64_t end_ = 0;
};

}  // namespace

Result<Versions> ReadVersions(const v1::CorrectRequest& request,
                              const Result<Layout>& layout,
                              const Tensors& tensors) {
  Result<Versions> result;
  const bool has_tensor = tensors.has(v1::TENSOR_ROLE_POLICY_VERSIONS);
  const bool has_spans = request.version_spans_size() > 0;
  if (!has_tensor && !has_spans) return result;
  result.value.came = true;
  result.value.trained = request.labels().policy_version();
  if (has_tensor && has_spans) {
    result.violations.push_back(
        {"version_spans",
         "the tensor policy_versions came too; send one of the two"});
  }
  if (!request.labels().has_policy_version()) {
    result.violations.push_back(
        {"labels.policy_version",
         "is required with versions of tokens: staleness is counted from it"});
  }
  result.value.spans.reserve(static_cast<size_t>(request.version_spans_size()));
  SpanReader reader(layout, &result);
  for (int i = 0; i < request.version_spans_size(); ++i) {
    reader.Read(request.version_spans(i), i);
  }
  return result;
}

Violation ToViolation(const kernels::BadVersion& bad) {
  const std::string where = Concat(" at sequence ", bad.sequence, ", token ",
                                   bad.token, ", where response_mask is 1; ");
  return {bad.by_span ? "version_spans" : "tensors[POLICY_VERSIONS]",
          Concat("the version is ", bad.version, where,
                 bad.version < 0
                     ? std::string("it must be >= 0, or -1 where unknown")
                     : Concat("labels.policy_version, of the policy being "
                              "trained, is ",
                              bad.trained))};
}

void EncodeStaleness(const kernels::StalenessSums& sums,
                     v1::CorrectResponse* response) {
  if (sums.measured == 0) return;
  v1::StalenessSummary* const summary = response->mutable_staleness();
  for (int b = 0; b < kernels::kNumStalenessBuckets; ++b) {
    const kernels::StalenessRange range = kernels::kStalenessBuckets[b];
    v1::StalenessBucket* const bucket = summary->add_buckets();
    bucket->set_first(range.first);
    if (range.last != kernels::kOpenEnd) bucket->set_last(range.last);
    bucket->set_tokens(sums.buckets[b].tokens);
    bucket->set_kl(kernels::KlOf(sums.buckets[b]));
    bucket->set_k3(kernels::K3Of(sums.buckets[b]));
  }
  summary->set_unknown_tokens(sums.unknown_tokens);
  summary->set_mean(kernels::Mean(sums.staleness, kernels::KnownTokens(sums)));
  summary->set_max(sums.max);
}

}  // namespace counterweight::server
