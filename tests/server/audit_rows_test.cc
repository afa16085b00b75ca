// The checks of audited rows, and their answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "server/engine/codec_diagnosis.h"
#include "tests/server/decoded_answers.h"

namespace counterweight::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kAudited = 40;
constexpr int kAuditedLength = 2;

// Row i has the log ratios i / 100 of old over rollout, and half of that of
// current over rollout.
v1::CorrectRequest AuditedBatch() {
  v1::CorrectRequest request;
  v1::PaddedLayout* const layout = request.mutable_layout()->mutable_padded();
  layout->set_num_sequences(kAudited);
  layout->set_length(kAuditedLength);
  std::vector<float> rollout, old, current;
  for (int i = 0; i < kAudited * kAuditedLength; ++i) {
    const float ratio = static_cast<float>(i / kAuditedLength) / 100.0F;
    rollout.push_back(-2.0F);
    old.push_back(-2.0F + ratio);
    current.push_back(-2.0F + ratio / 2.0F);
  }
  AddNumbers(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, rollout, &request);
  AddMask(std::string(kAudited * kAuditedLength, '\1'), &request);
  AddNumbers(v1::TENSOR_ROLE_CURRENT_LOG_PROBS, current, &request);
  AddNumbers(v1::TENSOR_ROLE_OLD_LOG_PROBS, old, &request);
  return request;
}

v1::CorrectRequest WithoutOld() {
  v1::CorrectRequest request = AuditedBatch();
  request.mutable_tensors()->RemoveLast();
  return request;
}

v1::DiagnoseResponse AnswerTo(const v1::CorrectRequest& request) {
  v1::DiagnoseResponse response;
  const Result<Patient> patient = DecodePatient(request, {}, {});
  EXPECT_TRUE(patient.ok()) << patient.violations.begin()->description;
  EXPECT_TRUE(Diagnose(patient.value, {}, &response).empty());
  return response;
}

double K3(double l) { return std::expm1(l) - l; }

TEST(AuditedRowsTest, MeasuresAllOrSomeRowsOrThoseBeforeTheUpdate) {
  v1::CorrectRequest request = AuditedBatch();
  request.mutable_audit();
  double sum = 0.0, half = 0.0;
  for (int i = 0; i < kAudited; ++i) {
    sum += K3(i / 100.0);
    half += K3(i / 200.0);
  }
  const v1::AuditSummary all = AnswerTo(request).audit();
  EXPECT_EQ(all.rows(), kAudited);
  EXPECT_EQ(all.tokens(), kAudited * kAuditedLength);
  EXPECT_NEAR(all.k3(), sum / kAudited, 1e-6);
  EXPECT_LT(all.low(), all.k3());
  EXPECT_GT(all.high(), all.k3());
  EXPECT_EQ(all.advice(), v1::AUDIT_ADVICE_MORE);
  EXPECT_THAT(all.sentence(), HasSubstr(" from 40 audited rows; audit more: "));

  request.mutable_audit()->add_rows(10);
  request.mutable_audit()->add_rows(39);
  const v1::AuditSummary some = AnswerTo(request).audit();
  EXPECT_EQ(some.rows(), 2);
  EXPECT_NEAR(some.k3(), (K3(0.1) + K3(0.39)) / 2.0, 1e-6);
  EXPECT_FALSE(some.has_low() || some.has_high());
  EXPECT_EQ(some.more_rows(), 30);

  request = WithoutOld();
  request.mutable_audit()->set_before_update(true);
  EXPECT_NEAR(AnswerTo(request).audit().k3(), half / kAudited, 1e-6);
}

TEST(AuditedRowsTest, SumsOfEarlierBatchesAddUpToOneBatch) {
  v1::CorrectRequest request = AuditedBatch();
  request.mutable_audit();
  const v1::AuditSummary whole = AnswerTo(request).audit();
  v1::AuditSummary last;
  for (int begin = 0; begin < kAudited; begin += 8) {
    request.mutable_audit()->clear_rows();
    for (int i = 0; i < 8; ++i) request.mutable_audit()->add_rows(begin + i);
    last = AnswerTo(request).audit();
    for (int i = 0; i < last.sums_size(); ++i) {
      if (request.audit().sums_size() == i)
        request.mutable_audit()->add_sums(0);
      request.mutable_audit()->set_sums(i,
                                        request.audit().sums(i) + last.sums(i));
    }
  }
  EXPECT_EQ(last.k3(), whole.k3());
  EXPECT_EQ(last.low(), whole.low());
  EXPECT_EQ(last.high(), whole.high());
  EXPECT_EQ(last.sentence(), whole.sentence());
}

TEST(AuditedRowsTest, AdviceAboutAnAlarm) {
  v1::CorrectRequest request = AuditedBatch();
  const auto advice = [&](double alarm) {
    request.mutable_audit()->set_alarm(alarm);
    return AnswerTo(request).audit().advice();
  };
  const double mean = [&] {
    request.mutable_audit();
    return AnswerTo(request).audit().k3();
  }();
  EXPECT_EQ(advice(mean), v1::AUDIT_ADVICE_MORE);
  EXPECT_EQ(advice(mean * 1.6), v1::AUDIT_ADVICE_ENOUGH);
  EXPECT_EQ(advice(mean * 10.0), v1::AUDIT_ADVICE_LESS);
  EXPECT_EQ(advice(mean / 10.0), v1::AUDIT_ADVICE_LESS);
}

TEST(AuditedRowsTest, OldLogProbsOfOtherRowsAreNotRead) {
  v1::CorrectRequest request = AuditedBatch();
  request.mutable_audit()->add_rows(0);
  const v1::DiagnoseResponse clean = AnswerTo(request);
  std::vector<float> old(size_t{kAudited} * kAuditedLength,
                         std::numeric_limits<float>::quiet_NaN());
  old[0] = old[1] = -2.0F;
  request.mutable_tensors()->RemoveLast();
  AddNumbers(v1::TENSOR_ROLE_OLD_LOG_PROBS, old, &request);
  const v1::DiagnoseResponse spoilt = AnswerTo(request);
  EXPECT_EQ(spoilt.audit().rows(), 1);
  EXPECT_EQ(spoilt.findings_size(), clean.findings_size());
  // Without current log-probs nothing is left to examine.
  request.mutable_tensors()->DeleteSubrange(2, 1);
  const v1::DiagnoseResponse pair = AnswerTo(request);
  EXPECT_EQ(pair.findings_size(), 0);
  EXPECT_THAT(pair.warnings(),
              ElementsAre(HasSubstr("the batch was not examined")));
}

TEST(AuditedRowsTest, NamesWhatIsWrong) {
  struct Refusal {
    std::function<void(v1::CorrectRequest*)> change;
    std::string field;
    std::string reason;
  };
  using Wire = v1::CorrectRequest;
  const Refusal refusals[] = {
      {[](Wire* r) { r->mutable_audit()->set_before_update(true); },
       "audit.before_update", "is for batches without old_log_probs"},
      {[](Wire* r) {
         *r = WithoutOld();
         r->mutable_audit();
       },
       "audit", "needs old_log_probs, or before_update"},
      {[](Wire* r) {
         *r = WithoutOld();
         r->mutable_audit()->set_before_update(true);
         r->mutable_audit()->add_rows(1);
       },
       "audit.rows", "are all before the first update"},
      {[](Wire* r) {
         r->mutable_tensors()->DeleteSubrange(2, 1);
         r->mutable_audit()->set_before_update(true);
       },
       "audit.before_update", "needs current_log_probs"},
      {[](Wire* r) {
         r->mutable_tensors()->DeleteSubrange(0, 1);
         r->mutable_audit();
       },
       "audit", "needs rollout_log_probs"},
      {[](Wire* r) { r->mutable_audit()->add_rows(kAudited); }, "audit.rows[0]",
       "one of the 40 sequences; it is 40"},
      {[](Wire* r) {
         r->mutable_audit()->add_rows(3);
         r->mutable_audit()->add_rows(3);
       },
       "audit.rows[1]", "must ascend"},
      {[](Wire* r) { r->mutable_audit()->add_sums(1.0); }, "audit.sums",
       "must be those of answers"},
      {[](Wire* r) { r->mutable_audit()->set_alarm(0.0); }, "audit.alarm",
       "must be finite and > 0"},
  };
  for (const Refusal& refusal : refusals) {
    v1::CorrectRequest request = AuditedBatch();
    refusal.change(&request);
    const Result<Patient> patient = DecodePatient(request, {}, {});
    ASSERT_FALSE(patient.ok()) << refusal.reason;
    EXPECT_EQ(patient.violations.begin()->field, refusal.field);
    EXPECT_THAT(patient.violations.begin()->description,
                HasSubstr(refusal.reason));
  }
}

}  // namespace
}  // namespace counterweight::server
