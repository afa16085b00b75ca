#include "server/engine/codec_publication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/engine/codec_publication_fields.h"
#include "tests/server/publications.h"

namespace counterweight::server {
namespace {

constexpr RequestLimits kLimits{.max_tokens = 1000, .max_sequences = 1000};

Result<Publication> ReadLimited(const v1::PublishRequest& request) {
  return ReadPublication(request, kLimits);
}

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> FieldsOf(const Violations& violations) {
  std::vector<std::string> fields;
  for (const Violation& each : violations) fields.push_back(each.field);
  return fields;
}

std::vector<std::string> ViolationsAfter(
    const std::function<void(v1::PublishRequest*)>& change) {
  v1::PublishRequest request = FullPublication();
  change(&request);
  return FieldsOf(ReadLimited(request).violations);
}

std::vector<std::string> ViolationsAfterSums(
    const std::function<void(v1::BatchSums*)>& change) {
  return ViolationsAfter(
      [&](v1::PublishRequest* request) { change(request->mutable_sums()); });
}

// A metric cannot be made of a sum that no message carries.
template <class Sums>
concept NamesPeers = requires(Sums sums) {
  sums.peers;
};
static_assert(NamesPeers<kernels::BatchSums>);
static_assert(!NamesPeers<PublishedSums>);

// The inverse of the copy that Published makes.
template <class Field, class Kernel, class Sums, size_t n>
void CopyBack(const Field (&table)[n], const Sums& from, Kernel* to) {
  for (const Field& field : table) to->*field.from = from.*field.sum;
}

// A field that holds a value: its message, the field, its path.
using Leaf =
    std::function<void(Message*, const FieldDescriptor*, const std::string&)>;

// The first entry represents all of a repeated field.
void ForEachLeaf(Message* message, const std::string& path, const Leaf& leaf) {
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* const field = message->GetDescriptor()->field(i);
    const std::string name(field->name());
    const std::string own =
        path + "." + name + (field->is_repeated() ? "[0]" : "");
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      leaf(message, field, own);
    } else if (field->is_repeated()) {
      ForEachLeaf(
          message->GetReflection()->MutableRepeatedMessage(message, field, 0),
          own, leaf);
    } else {
      ForEachLeaf(message->GetReflection()->MutableMessage(message, field), own,
                  leaf);
    }
  }
}

void SetInt(Message* message, const FieldDescriptor* field, int64_t value) {
  if (field->is_repeated()) {
    message->GetReflection()->SetRepeatedInt64(message, field, 0, value);
  } else {
    message->GetReflection()->SetInt64(message, field, value);
  }
}

// A field without a check, and one that is not read, fail here.
TEST(Publication, EveryWrongNumberIsNamed) {
  const v1::PublishRequest valid = FullPublication();
  int fields = 0;
  v1::PublishRequest request = valid;
  ForEachLeaf(
      request.mutable_sums(), "sums",
      [&](Message* message, const FieldDescriptor* field,
          const std::string& path) {
        ++fields;
        const auto expect_named = [&] {
          EXPECT_THAT(FieldsOf(ReadLimited(request).violations),
                      ElementsAre(path));
        };
        const std::unique_ptr<Message> before(message->New());
        before->CopyFrom(*message);
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
          for (const int64_t wrong : {int64_t{-1}, kLimits.max_tokens + 1}) {
            SetInt(message, field, wrong);
            expect_named();
          }
        } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
          message->GetReflection()->SetString(message, field, "No name");
          expect_named();
        } else {
          ASSERT_EQ(field->cpp_type(), FieldDescriptor::CPPTYPE_DOUBLE) << path;
          message->GetReflection()->SetDouble(message, field, kNan);
          if (!path.starts_with("sums.loss.")) expect_named();
        }
        message->CopyFrom(*before);
      });
  EXPECT_GE(fields, 47);
  EXPECT_THAT(FieldsOf(ReadLimited(request).violations), IsEmpty());
}

// Reading and writing again keeps the message: no number is lost or takes
// another's place.
// Paths of the numbers that may not have this value.
std::vector<std::string> NumbersThatRefuse(double value) {
  std::vector<std::string> refused;
  v1::PublishRequest request = FullPublication();
  ForEachLeaf(request.mutable_sums(), "sums",
              [&](Message* message, const FieldDescriptor* field,
                  const std::string& path) {
                if (field->cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE) {
                  return;
                }
                const auto* const reflection = message->GetReflection();
                const double before = reflection->GetDouble(*message, field);
                reflection->SetDouble(message, field, value);
                const auto fields = FieldsOf(ReadLimited(request).violations);
                reflection->SetDouble(message, field, before);
                if (fields.empty()) return;
                EXPECT_THAT(fields, ElementsAre(path));
                refused.push_back(path);
              });
  return refused;
}

// As proto/counterweight/v1/sums.proto has it.
TEST(Publication, NumbersHaveTheirRanges) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // A log ratio or two below 0 are possible.
  EXPECT_THAT(NumbersThatRefuse(-0.001),
              UnorderedElementsAre(
                  "sums.drift.k2", "sums.drift.k3", "sums.drift.excess_squared",
                  "sums.weight.weight", "sums.weight.weight_squared",
                  "sums.weight.excess_squared", "sums.weight.max",
                  "sums.weight.kept_weight", "sums.weight.kept_weight_squared",
                  "sums.staleness.staleness", "sums.staleness.buckets[0].k3"));
  EXPECT_THAT(NumbersThatRefuse(kInfinity),
              UnorderedElementsAre(
                  "sums.drift.log_ratio", "sums.drift.excess",
                  "sums.drift.excess_squared", "sums.drift.log_ppl_difference",
                  "sums.drift.chi2_sequence", "sums.staleness.staleness",
                  "sums.staleness.buckets[0].log_ratio"));
  EXPECT_THAT(
      NumbersThatRefuse(-kInfinity),
      UnorderedElementsAre(
          "sums.drift.log_ratio", "sums.drift.k2", "sums.drift.k3",
          "sums.drift.excess", "sums.drift.excess_squared",
          "sums.drift.log_ppl_difference", "sums.drift.ppl_ratio_excess",
          "sums.drift.chi2_sequence", "sums.weight.weight",
          "sums.weight.weight_squared", "sums.weight.excess",
          "sums.weight.excess_squared", "sums.weight.max",
          "sums.weight.kept_weight", "sums.weight.kept_weight_squared",
          "sums.staleness.staleness", "sums.staleness.buckets[0].log_ratio",
          "sums.staleness.buckets[0].k3"));
}

TEST(Publication, ReadingKeepsEveryNumber) {
  const v1::PublishRequest request = FullPublication();
  const Result<Publication> read = ReadLimited(request);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(WritePublication(read.value).DebugString(), request.DebugString());
}

// A mask may have dropped all tokens.
TEST(Publication, TheLargestWeightMayBe0) {
  v1::PublishRequest request = FullPublication();
  request.mutable_sums()->mutable_weight()->set_max(0);
  const Result<Publication> read = ReadLimited(request);
  ASSERT_TRUE(read.ok());
  const v1::PublishRequest written = WritePublication(read.value);
  EXPECT_EQ(written.DebugString(), request.DebugString());
  EXPECT_TRUE(ReadLimited(written).ok());
}

TEST(Publication, ALossMayBeAnyNumber) {
  v1::PublishRequest request = FullPublication();
  v1::LossSums& loss = *request.mutable_sums()->mutable_loss();
  loss.set_total(kNan);
  loss.set_slope(std::numeric_limits<double>::infinity());
  const Result<Publication> read = ReadLimited(request);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(std::isnan(read.value.batch.sums.loss.total));
  EXPECT_TRUE(std::isinf(read.value.batch.sums.loss.slope));
}

// A batch that the server corrected is published as one that a client sends.
TEST(Publication, PublishedIsWhatTheMessageCarries) {
  const Publication full = ReadLimited(FullPublication()).value;
  const PublishedSums& from = full.batch.sums;
  kernels::CorrectionSpec spec;
  spec.weight.level = kernels::Level::kToken;
  spec.loss.surrogate = kernels::Surrogate::kPpoClip;
  spec.loss.kl.estimator = kernels::KlEstimator::kK3;
  kernels::BatchSums sums{};
  CopyBack(kBatchCounts, from, &sums);
  CopyBack(kDriftNumbers, from.drift, &sums.drift);
  std::copy(std::begin(from.drift.histogram), std::end(from.drift.histogram),
            sums.drift.histogram);
  std::copy(std::begin(from.drift.sequence_histogram),
            std::end(from.drift.sequence_histogram),
            sums.drift.sequence_histogram);
  CopyBack(kWeightNumbers, from.weight, &sums.weight);
  CopyBack(kKeptWeightNumbers, from.weight, &sums.weight);
  CopyBack(kWeightCounts, from.weight, &sums.weight);
  sums.weight.range.max = from.weight.range.max;
  CopyBack(kLossNumbers, from.loss, &sums.loss);
  CopyBack(kLossCounts, from.loss, &sums.loss);
  CopyBack(kKlPenaltyNumbers, from.loss, &sums.loss);
  CopyBack(kKlPenaltyCounts, from.loss, &sums.loss);
  for (size_t r = 0; r < full.batch.rule_names.size(); ++r) {
    CopyBack(kRuleCounts, from.rules[r], &sums.rules[r]);
  }
  sums.staleness.measured = 1;
  CopyBack(kStalenessNumbers, from.staleness, &sums.staleness);
  CopyBack(kStalenessCounts, from.staleness, &sums.staleness);
  std::copy(std::begin(from.staleness.histogram),
            std::end(from.staleness.histogram), sums.staleness.histogram);
  std::copy(std::begin(from.staleness.buckets),
            std::end(from.staleness.buckets), sums.staleness.buckets);
  Publication published = full;
  published.batch = Published(spec, full.batch.rule_names, sums);
  EXPECT_EQ(WritePublication(published).DebugString(),
            FullPublication().DebugString());
}

TEST(Publication, PartsThatTheMethodLacksAreAbsent) {
  kernels::BatchSums sums{};
  sums.weight.weight = 1;
  sums.loss.total = 1;
  const v1::PublishRequest written =
      WritePublication({.request_id = "id",
                        .run = "",
                        .replica = "",
                        .policy_version = std::nullopt,
                        .batch = Published({}, {}, sums)});
  EXPECT_FALSE(written.sums().has_weight());
  EXPECT_FALSE(written.sums().has_loss());
  EXPECT_FALSE(written.sums().has_staleness());
  EXPECT_TRUE(ReadLimited(written).ok());
}

// As of a library that did not measure them.
TEST(Publication, SumsOfKeptWeightsAreBothThereOrAbsent) {
  v1::PublishRequest request = FullPublication();
  v1::WeightSums& weight = *request.mutable_sums()->mutable_weight();
  weight.clear_kept_weight();
  EXPECT_THAT(FieldsOf(ReadLimited(request).violations),
              ElementsAre("sums.weight.kept_weight"));
  weight.clear_kept_weight_squared();
  const Result<Publication> read = ReadLimited(request);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read.value.batch.has_weight);
  EXPECT_FALSE(read.value.batch.has_kept_weight);
  EXPECT_EQ(WritePublication(read.value).DebugString(), request.DebugString());
  weight.set_kept_weight(1);
  EXPECT_THAT(FieldsOf(ReadLimited(request).violations),
              ElementsAre("sums.weight.kept_weight_squared"));
}

TEST(Publication, PolicyVersion0IsNoneTheLess) {
  v1::PublishRequest request = FullPublication();
  request.mutable_labels()->set_policy_version(0);
  const Result<Publication> read = ReadLimited(request);
  EXPECT_EQ(read.value.policy_version, 0);
  EXPECT_EQ(WritePublication(read.value).DebugString(), request.DebugString());
}

TEST(Publication, OriginIsCheckedAsOfCorrect) {
  EXPECT_THAT(FieldsOf(ReadLimited({}).violations),
              ElementsAre("request_id", "sums"));
  EXPECT_THAT(ViolationsAfter([](auto* request) {
                request->set_request_id(std::string(129, 'x'));
                request->mutable_labels()->set_run("a b");
                request->mutable_labels()->set_replica(std::string(65, 'x'));
                request->mutable_labels()->set_policy_version(-1);
              }),
              ElementsAre("request_id", "labels.run", "labels.replica",
                          "labels.policy_version"));
  EXPECT_THAT(ViolationsAfter([](auto* request) {
                request->mutable_labels()->clear_policy_version();
              }),
              ElementsAre("labels.policy_version"));
}

TEST(Publication, PartsAreNoMoreThanTheWhole) {
  const auto sums = ViolationsAfterSums;
  EXPECT_THAT(sums([](auto* s) { s->set_kept_tokens(101); }),
              ElementsAre("sums.kept_tokens"));
  EXPECT_THAT(sums([](auto* s) { s->set_nonempty_sequences(10); }),
              ElementsAre("sums.nonempty_sequences"));
  EXPECT_THAT(sums([](auto* s) { s->mutable_weight()->set_tokens_high(9); }),
              ElementsAre("sums.weight.tokens_high"));
  EXPECT_THAT(sums([](auto* s) { s->mutable_loss()->set_clipped(101); }),
              ElementsAre("sums.loss.clipped"));
  EXPECT_THAT(
      sums([](auto* s) { s->mutable_rules(1)->set_dropped_sequences(8); }),
      ElementsAre("sums.rules[1].dropped_sequences"));
  EXPECT_THAT(
      sums([](auto* s) { s->mutable_drift()->set_token_histogram(10, 2); }),
      ElementsAre("sums.drift.token_histogram"));
  EXPECT_THAT(
      sums([](auto* s) { s->mutable_drift()->add_sequence_histogram(0); }),
      ElementsAre("sums.drift.sequence_histogram"));
  EXPECT_THAT(
      sums([](auto* s) { s->mutable_staleness()->set_unknown_tokens(8); }),
      ElementsAre("sums.staleness.buckets"));
  EXPECT_THAT(
      sums([](auto* s) { s->mutable_staleness()->set_histogram(9, 1); }),
      ElementsAre("sums.staleness.histogram"));
  EXPECT_THAT(
      sums([](auto* s) { s->mutable_staleness()->mutable_buckets()->Clear(); }),
      ElementsAre("sums.staleness.buckets"));
  // Tokens of no sequence. Another part of the sequences may be named first.
  EXPECT_THAT(sums([](auto* s) {
                s->set_nonempty_sequences(0);
                s->set_kept_sequences(0);
                s->mutable_drift()->set_log_ppl_difference(0);
                s->clear_rules();
              }),
              Not(IsEmpty()));
}

// As proto/counterweight/v1/sums.proto has it; the KL penalty may have tokens
// of its own.
TEST(Publication, ACountMayBeAsLargeAsItsWhole) {
  const auto expect_most = [](const char* path, int64_t most,
                              void (*set)(v1::BatchSums*, int64_t)) {
    EXPECT_THAT(ViolationsAfterSums([&](auto* s) { set(s, most); }), IsEmpty())
        << path;
    EXPECT_THAT(ViolationsAfterSums([&](auto* s) { set(s, most + 1); }),
                ElementsAre(path));
  };
  expect_most("sums.kept_tokens", 100,
              [](auto* s, int64_t n) { s->set_kept_tokens(n); });
  expect_most("sums.kept_sequences", 7,
              [](auto* s, int64_t n) { s->set_kept_sequences(n); });
  expect_most("sums.non_finite_tokens", kLimits.max_tokens,
              [](auto* s, int64_t n) { s->set_non_finite_tokens(n); });
  expect_most("sums.weight.tokens_high", 8, [](auto* s, int64_t n) {
    s->mutable_weight()->set_tokens_high(n);
  });
  expect_most("sums.weight.tokens_outside", 100, [](auto* s, int64_t n) {
    s->mutable_weight()->set_tokens_outside(n);
  });
  expect_most("sums.loss.clipped", 100,
              [](auto* s, int64_t n) { s->mutable_loss()->set_clipped(n); });
  expect_most("sums.loss.high", 100,
              [](auto* s, int64_t n) { s->mutable_loss()->set_high(n); });
  expect_most("sums.loss.low", 100,
              [](auto* s, int64_t n) { s->mutable_loss()->set_low(n); });
  expect_most("sums.loss.kl_penalty.kl_tokens", kLimits.max_tokens,
              [](auto* s, int64_t n) {
                s->mutable_loss()->mutable_kl_penalty()->set_kl_tokens(n);
              });
  expect_most("sums.rules[0].dropped_tokens", 100, [](auto* s, int64_t n) {
    s->mutable_rules(0)->set_dropped_tokens(n);
  });
  expect_most("sums.rules[0].dropped_sequences", 7, [](auto* s, int64_t n) {
    s->mutable_rules(0)->set_dropped_sequences(n);
  });
}

// Nothing was generated, or nothing counts: the smallest batch of all.
TEST(Publication, ABatchWithoutTokensIsOne) {
  EXPECT_THAT(ViolationsAfterSums([](v1::BatchSums* s) {
                s->Clear();
                s->set_sequences(3);
                for (int b = 0; b < 11; ++b) {
                  s->mutable_drift()->add_token_histogram(0);
                  s->mutable_drift()->add_sequence_histogram(0);
                }
                s->mutable_weight();
                s->mutable_loss()->mutable_kl_penalty();
                s->add_rules()->set_name("mean_k3");
              }),
              IsEmpty());
}

TEST(Publication, RequiredPartsAndTheNumberOfRules) {
  const auto sums = ViolationsAfterSums;
  EXPECT_THAT(sums([](auto* s) { s->clear_drift(); }),
              ElementsAre("sums.drift"));
  EXPECT_THAT(sums([](auto* s) { s->mutable_weight()->clear_max(); }),
              ElementsAre("sums.weight.max"));
  const auto with_rules = [&](int number) {
    return sums([number](auto* s) {
      while (s->rules_size() < number) s->add_rules()->set_name("a");
    });
  };
  EXPECT_THAT(with_rules(15), IsEmpty());
  EXPECT_THAT(with_rules(16), ElementsAre("sums.rules"));
}

// The sum of a histogram is never taken back.
TEST(Publication, SumsOfHistogramsHaveBounds) {
  const auto sums = ViolationsAfterSums;
  EXPECT_THAT(
      sums([](auto* s) { s->mutable_drift()->set_log_ratio(100 * 0x1p128); }),
      IsEmpty());
  EXPECT_THAT(
      sums([](auto* s) { s->mutable_drift()->set_log_ratio(-101 * 0x1p128); }),
      ElementsAre("sums.drift.log_ratio"));
  EXPECT_THAT(sums([](auto* s) {
                s->mutable_drift()->set_log_ppl_difference(8 * 0x1p128);
              }),
              ElementsAre("sums.drift.log_ppl_difference"));
  EXPECT_THAT(
      sums([](auto* s) { s->mutable_staleness()->set_staleness(0x1p80); }),
      ElementsAre("sums.staleness.staleness"));
  EXPECT_THAT(
      sums([](auto* s) { s->mutable_drift()->set_k3(kernels::kUnbounded); }),
      IsEmpty());
}

// No message counts for more than the largest batch that the server takes.
TEST(Publication, CountsAreWithinTheServersLimits) {
  v1::PublishRequest request = FullPublication();
  const auto read = [&](int64_t tokens, int64_t sequences) {
    return ReadPublication(request,
                           {.max_tokens = tokens, .max_sequences = sequences});
  };
  EXPECT_TRUE(read(100, 9).ok());
  EXPECT_THAT(FieldsOf(read(100, 8).violations), ElementsAre("sums.sequences"));
  const Result<Publication> refused = read(99, 9);
  EXPECT_THAT(FieldsOf(refused.violations), ElementsAre("sums.tokens"));
  EXPECT_THAT(
      refused.violations.front().description,
      HasSubstr("must be from 0 to 99, the server's --max_tokens; got 100"));
  request.mutable_sums()->set_non_finite_tokens(101);
  EXPECT_THAT(FieldsOf(read(100, 9).violations),
              ElementsAre("sums.non_finite_tokens"));
}

TEST(Publication, SumsFitTheirHistograms) {
  const auto calm = [](v1::BatchSums* s) {
    for (int b = 0; b < 11; ++b) {
      s->mutable_drift()->set_token_histogram(b, b == 5 ? 100 : 0);
      s->mutable_drift()->set_sequence_histogram(b, b == 5 ? 7 : 0);
    }
    s->mutable_drift()->set_log_ratio(1);  // 100 times the edge of 0.01
    s->mutable_drift()->set_k3(5.0167e-3);
    s->mutable_drift()->set_log_ppl_difference(-0.07);
  };
  const auto sums = [&](const std::function<void(v1::DriftSums*)>& change) {
    return ViolationsAfterSums([&](v1::BatchSums* s) {
      calm(s);
      change(s->mutable_drift());
    });
  };
  EXPECT_THAT(sums([](auto*) {}), IsEmpty());
  EXPECT_THAT(sums([](auto* drift) { drift->set_log_ratio(1.01); }),
              ElementsAre("sums.drift.log_ratio"));
  EXPECT_THAT(sums([](auto* drift) { drift->set_log_ratio(-3e38); }),
              ElementsAre("sums.drift.log_ratio"));
  EXPECT_THAT(sums([](auto* drift) { drift->set_k3(5.1e-3); }),
              ElementsAre("sums.drift.k3"));
  EXPECT_THAT(sums([](auto* drift) { drift->set_k3(kernels::kUnbounded); }),
              ElementsAre("sums.drift.k3"));
  EXPECT_THAT(sums([](auto* drift) { drift->set_log_ppl_difference(0.08); }),
              ElementsAre("sums.drift.log_ppl_difference"));
  // A token beyond the outermost edges may have any log ratio.
  EXPECT_THAT(sums([](auto* drift) {
                drift->set_token_histogram(5, 99);
                drift->set_token_histogram(10, 1);
                drift->set_log_ratio(3e38);
                drift->set_k3(kernels::kUnbounded);
              }),
              IsEmpty());
  EXPECT_THAT(sums([](auto* drift) {
                drift->set_token_histogram(5, 99);
                drift->set_token_histogram(10, 1);
                drift->set_log_ratio(-3e38);
              }),
              ElementsAre("sums.drift.log_ratio"));
}

TEST(Publication, DescriptionsTellTheLimit) {
  v1::PublishRequest request = FullPublication();
  request.mutable_sums()->set_kept_tokens(101);
  EXPECT_THAT(ReadLimited(request).violations.front().description,
              HasSubstr("must be from 0 to 100, the batch's tokens; got 101"));
}

}  // namespace
}  // namespace counterweight::server
