#include "server/engine/codec_publication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/engine/codec_publication_fields.h"
#include "tests/server/publications.h"
#include "tests/testing/sums_fields.h"

namespace counterweight::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
  return FieldsOf(ReadPublication(request).violations);
}

std::vector<std::string> ViolationsAfterSums(
    const std::function<void(v1::BatchSums*)>& change) {
  return ViolationsAfter(
      [&](v1::PublishRequest* request) { change(request->mutable_sums()); });
}

// A field that holds a value: its message, the field, its path.
using Leaf =
    std::function<void(Message*, const FieldDescriptor*, const std::string&)>;

// The first entry stands for all of a repeated field.
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
          EXPECT_THAT(FieldsOf(ReadPublication(request).violations),
                      ElementsAre(path));
        };
        const std::unique_ptr<Message> before(message->New());
        before->CopyFrom(*message);
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
          for (const int64_t wrong : {int64_t{-1}, kMostCount + 1}) {
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
  EXPECT_EQ(fields, 45);
  EXPECT_THAT(FieldsOf(ReadPublication(request).violations), IsEmpty());
}

// Reading and writing again keeps the message: no number is lost or takes
// another's place.
TEST(Publication, ReadingKeepsEveryNumber) {
  const v1::PublishRequest request = FullPublication();
  const Result<Publication> read = ReadPublication(request);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(WritePublication(read.value).DebugString(), request.DebugString());
}

TEST(Publication, ALossMayBeAnyNumber) {
  v1::PublishRequest request = FullPublication();
  v1::LossSums& loss = *request.mutable_sums()->mutable_loss();
  loss.set_total(kNan);
  loss.set_slope(std::numeric_limits<double>::infinity());
  const Result<Publication> read = ReadPublication(request);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(std::isnan(read.value.batch.sums.loss.total));
  EXPECT_TRUE(std::isinf(read.value.batch.sums.loss.slope));
}

// The message's numbers survive, and others become 0.
TEST(Publication, PublishedIsWhatTheMessageCarries) {
  const Publication full = ReadPublication(FullPublication()).value;
  kernels::CorrectionSpec spec;
  spec.weight.level = kernels::Level::kToken;
  spec.loss.surrogate = kernels::Surrogate::kPpoClip;
  spec.loss.kl.estimator = kernels::KlEstimator::kK3;
  kernels::BatchSums more = full.batch.sums;
  more.touched_sequences = 1;
  more.drift.abs_log_ratio = 1;
  more.weight.normalizer = 1;
  more.rules[0].sum = 1;
  more.loss.ratio = 1;
  more.staleness.max = 1;
  Publication published = full;
  published.batch = Published(spec, full.batch.rule_names, more);
  const auto fields = kernels::Fields(published.batch.sums);
  const auto expected = kernels::Fields(full.batch.sums);
  ASSERT_EQ(fields.size(), expected.size());
  for (size_t i = 0; i < fields.size(); ++i) {
    EXPECT_EQ(fields[i].value, expected[i].value) << fields[i].name;
  }
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
  EXPECT_TRUE(ReadPublication(written).ok());
}

TEST(Publication, OriginIsCheckedAsOfCorrect) {
  EXPECT_THAT(FieldsOf(ReadPublication({}).violations),
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
  EXPECT_THAT(sums([](auto* s) {
                s->set_nonempty_sequences(0);
                s->set_kept_sequences(0);
                s->mutable_drift()->set_log_ppl_difference(0);
                s->clear_rules();
              }),
              testing::Contains("sums.nonempty_sequences"));
}

TEST(Publication, RequiredPartsAndTheNumberOfRules) {
  const auto sums = ViolationsAfterSums;
  EXPECT_THAT(sums([](auto* s) { s->clear_drift(); }),
              ElementsAre("sums.drift"));
  EXPECT_THAT(sums([](auto* s) { s->mutable_weight()->clear_max(); }),
              ElementsAre("sums.weight.max"));
  EXPECT_THAT(sums([](auto* s) {
                while (s->rules_size() < 16) s->add_rules()->set_name("a");
              }),
              ElementsAre("sums.rules"));
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

TEST(Publication, DescriptionsTellTheLimit) {
  v1::PublishRequest request = FullPublication();
  request.mutable_sums()->set_kept_tokens(101);
  EXPECT_THAT(ReadPublication(request).violations.front().description,
              HasSubstr("must be from 0 to 100, the batch's tokens; got 101"));
}

}  // namespace
}  // namespace counterweight::server
