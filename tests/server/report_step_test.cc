// Optimizer steps as trainers report them, in the metrics of a running server.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/observe/step_ledger.h"
#include "tests/server/running_server.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

v1::Receipt ReceiptOf(uint64_t fingerprint, int64_t tokens, int64_t changed,
                      double excess, int64_t dropped = 0) {
  v1::Receipt receipt;
  receipt.set_fingerprint(fingerprint);
  receipt.set_tokens(tokens);
  receipt.set_changed_tokens(changed);
  receipt.set_dropped_tokens(dropped);
  receipt.set_weight_excess(excess);
  return receipt;
}

v1::ReportStepRequest ReportOf(int64_t step, const v1::Receipt& issued,
                               const v1::Receipt& applied,
                               const std::string& id = "id") {
  v1::ReportStepRequest request;
  request.set_request_id(id + "-" + std::to_string(step));
  request.mutable_labels()->set_run("run");
  request.mutable_labels()->set_step(step);
  request.set_tokens(applied.tokens());
  *request.mutable_issued() = issued;
  *request.mutable_applied() = applied;
  return request;
}

class ReportStepTest : public testing::Test {
 protected:
  static Config WithMetrics() {
    Config config = TestConfig();
    config.metrics_listen = {.host = "127.0.0.1", .port = 0, .path = ""};
    return config;
  }

  grpc::Status Report(const v1::ReportStepRequest& request) {
    grpc::ClientContext context;
    return v1::CorrectionService::NewStub(running_.channel())
        ->ReportStep(&context, request, &answer_);
  }

  v1::ReceiptState StateAfter(const v1::ReportStepRequest& request) {
    EXPECT_TRUE(Report(request).ok());
    return answer_.state();
  }

  std::vector<std::string> FieldsOf(const v1::ReportStepRequest& request) {
    const grpc::Status status = Report(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    std::vector<std::string> names;
    const auto detail = DetailOf<google::rpc::BadRequest>(status);
    for (const auto& each : detail.field_violations()) {
      names.push_back(each.field());
    }
    return names;
  }

  RunningServer running_{WithMetrics()};
  v1::ReportStepResponse answer_;
};

TEST_F(ReportStepTest, IsAnnounced) {
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(v1::CorrectionService::NewStub(running_.channel())
                  ->GetServerInfo(&context, {}, &info)
                  .ok());
  EXPECT_THAT(info.features(), testing::Contains("report_step"));
}

TEST_F(ReportStepTest, EachStateIsAnsweredAndCounted) {
  const v1::Receipt issued = ReceiptOf(7, 100, 90, 3.0, 20);
  EXPECT_EQ(StateAfter(ReportOf(1, issued, issued)), v1::RECEIPT_STATE_USED);
  EXPECT_EQ(answer_.warnings_size(), 0);
  EXPECT_EQ(StateAfter(ReportOf(2, issued, ReceiptOf(8, 100, 0, 0.0))),
            v1::RECEIPT_STATE_UNUSED);
  EXPECT_THAT(answer_.warnings(),
              ElementsAre(HasSubstr("did not use the weights")));
  // The weights were all 1 and the mask was not: the rules' mask was ignored.
  EXPECT_EQ(StateAfter(ReportOf(3, ReceiptOf(7, 100, 0, 0.0, 20),
                                ReceiptOf(8, 120, 0, 0.0))),
            v1::RECEIPT_STATE_UNUSED);
  EXPECT_EQ(StateAfter(ReportOf(4, issued, ReceiptOf(8, 100, 88, 3.01))),
            v1::RECEIPT_STATE_ROUNDED);
  EXPECT_THAT(answer_.warnings(), ElementsAre(HasSubstr("float32")));
  // The same sum of other weights: those of other tokens.
  EXPECT_EQ(StateAfter(ReportOf(5, issued, ReceiptOf(8, 100, 90, 3.0))),
            v1::RECEIPT_STATE_REPLACED);
  EXPECT_EQ(StateAfter(ReportOf(6, issued, ReceiptOf(7, 99, 90, 3.0))),
            v1::RECEIPT_STATE_REPLACED);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(StateAfter(ReportOf(7, issued, ReceiptOf(8, 100, 90, nan))),
            v1::RECEIPT_STATE_REPLACED);
  const std::string page = running_.Scrape();
  for (const char* line :
       {"counterweight_step_steps_total{run=\"run\"} 7\n",
        "counterweight_step_receipts_total{run=\"run\",state=\"used\"} 1\n",
        "counterweight_step_receipts_total{run=\"run\",state=\"unused\"} 2\n",
        "counterweight_step_receipts_total{run=\"run\",state=\"rounded\"} 1\n",
        "counterweight_step_receipts_total{run=\"run\",state=\"replaced\"} 3\n",
        "counterweight_step_tokens_total{entry=\"trained\",run=\"run\"} 719\n",
        "counterweight_step_tokens_total{entry=\"corrected\",run=\"run\"} "
        "840\n",
        "counterweight_step_changed_tokens_total{entry=\"applied\",run=\"run\"}"
        " 448\n",
        "counterweight_step_ratio_one_total{run=\"run\"} 0\n",
        "counterweight_requests_total{code=\"OK\",method=\"ReportStep\"} "
        "7\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

// A driver receives the weights, ranks apply them, and none has both sides.
TEST_F(ReportStepTest, TheReportsOfAllProcessesAddUp) {
  v1::ReportStepRequest driver = ReportOf(1, ReceiptOf(12, 60, 50, 1.0), {});
  driver.clear_applied();
  driver.set_num_reports(3);
  v1::ReportStepRequest rank =
      ReportOf(1, {}, ReceiptOf(~uint64_t{0}, 20, 15, 0.25), "rank0");
  rank.clear_issued();
  rank.set_num_reports(3);
  EXPECT_EQ(StateAfter(rank), v1::RECEIPT_STATE_UNSPECIFIED);
  EXPECT_EQ(StateAfter(driver), v1::RECEIPT_STATE_UNSPECIFIED);
  rank.set_request_id("rank1");
  // Fingerprints add up modulo 2^64.
  *rank.mutable_applied() = ReceiptOf(13, 40, 35, 0.75);
  rank.set_tokens(40);
  EXPECT_EQ(StateAfter(rank), v1::RECEIPT_STATE_USED);
  // Sent again it counts no more, and has the same answer.
  EXPECT_EQ(StateAfter(rank), v1::RECEIPT_STATE_USED);
  const std::string page = running_.Scrape();
  EXPECT_THAT(page, HasSubstr("step_steps_total{run=\"run\"} 1\n"));
  EXPECT_THAT(page,
              HasSubstr("step_tokens_total{entry=\"trained\",run=\"run\"} 60"));
}

TEST_F(ReportStepTest, OneSideIsNoVerdict) {
  v1::ReportStepRequest request = ReportOf(1, ReceiptOf(1, 1, 1, 1), {});
  request.clear_applied();
  request.set_ratio_all_one(true);
  (*request.mutable_skipped_batches())["count_mismatch"] = 2;
  EXPECT_EQ(StateAfter(request), v1::RECEIPT_STATE_UNSPECIFIED);
  v1::ReportStepRequest other = ReportOf(2, {}, ReceiptOf(1, 1, 0, 0));
  other.clear_issued();
  EXPECT_EQ(StateAfter(other), v1::RECEIPT_STATE_UNSPECIFIED);
  const std::string page = running_.Scrape();
  for (const char* line :
       {"receipts_total{run=\"run\",state=\"not_applied\"} 1\n",
        "receipts_total{run=\"run\",state=\"not_issued\"} 1\n",
        "counterweight_step_ratio_one_total{run=\"run\"} 1\n",
        "skipped_batches_total{reason=\"count_mismatch\",run=\"run\"} 2\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

TEST_F(ReportStepTest, AStepWithMissingReportsIsIncomplete) {
  const v1::Receipt receipt = ReceiptOf(7, 100, 90, 3.0);
  v1::ReportStepRequest half = ReportOf(1, receipt, receipt);
  half.set_num_reports(2);
  half.set_ratio_all_one(true);
  EXPECT_EQ(StateAfter(half), v1::RECEIPT_STATE_UNSPECIFIED);
  for (const int64_t step : {2, 3}) {
    EXPECT_EQ(StateAfter(ReportOf(step, receipt, receipt)),
              v1::RECEIPT_STATE_USED);
  }
  const std::string page = running_.Scrape();
  for (const char* line :
       {"counterweight_step_steps_total{run=\"run\"} 3\n",
        "receipts_total{run=\"run\",state=\"incomplete\"} 1\n",
        "receipts_total{run=\"run\",state=\"used\"} 2\n",
        "counterweight_step_ratio_one_total{run=\"run\"} 0\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  EXPECT_THAT(running_.Get("/page.json"), HasSubstr(R"("last_step":"used")"));
}

TEST_F(ReportStepTest, InventedReasonsTakeBoundedMemory) {
  const auto batches = StepSeries::kMaxReasons + 3;
  for (size_t i = 0; i < batches; ++i) {
    v1::ReportStepRequest request =
        ReportOf(static_cast<int64_t>(i), {}, ReceiptOf(1, 1, 0, 0));
    (*request.mutable_skipped_batches())["reason" + std::to_string(i)] = 1;
    ASSERT_TRUE(Report(request).ok());
  }
  const std::string page = running_.Scrape();
  EXPECT_THAT(page, HasSubstr("{reason=\"reason15\",run=\"run\"} 1\n"));
  EXPECT_THAT(page, Not(HasSubstr("reason16")));
  EXPECT_THAT(page, HasSubstr("{reason=\"other\",run=\"run\"} 3\n"));
}

TEST_F(ReportStepTest, EachWrongFieldIsNamedAndNothingCounts) {
  EXPECT_THAT(FieldsOf({}),
              ElementsAre("request_id", "labels.run", "labels.step"));
  v1::ReportStepRequest request =
      ReportOf(-1, ReceiptOf(0, -1, 0, 0), ReceiptOf(0, 1, 2, 0));
  request.set_tokens((int64_t{1} << 48) + 1);
  request.set_num_reports(0);
  (*request.mutable_skipped_batches())["two words"] = 1;
  (*request.mutable_skipped_batches())["late"] = -1;
  EXPECT_THAT(FieldsOf(request),
              UnorderedElementsAre("labels.step", "tokens", "issued.tokens",
                                   "issued.changed_tokens",
                                   "applied.changed_tokens", "skipped_batches",
                                   "skipped_batches[late]", "num_reports"));
  v1::ReportStepRequest many = ReportOf(1, {}, {});
  for (int i = 0; i < 9; ++i) {
    (*many.mutable_skipped_batches())["reason" + std::to_string(i)] = 1;
  }
  EXPECT_THAT(FieldsOf(many), ElementsAre("skipped_batches"));
  EXPECT_THAT(running_.Scrape(), Not(HasSubstr("step_steps_total{")));
}

TEST_F(ReportStepTest, AServerThatDrainsTakesIt) {
  running_.server().AnnounceDrain();
  running_.server().RefuseNewWork();
  const v1::Receipt receipt = ReceiptOf(7, 100, 90, 3.0);
  EXPECT_EQ(StateAfter(ReportOf(1, receipt, receipt)), v1::RECEIPT_STATE_USED);
}

StepReport PartOfStep(int64_t step, int64_t num_reports) {
  StepReport report;
  report.step = step;
  report.num_reports = num_reports;
  report.issued = Receipt{.fingerprint = 1, .tokens = 1};
  report.applied = report.issued;
  return report;
}

TEST(StepLedger, AStepWithMissingReportsIsDisplacedByTwoNewerOnes) {
  StepLedger ledger;
  EXPECT_TRUE(ledger.Add(PartOfStep(1, 2)).empty());
  EXPECT_TRUE(ledger.Add(PartOfStep(2, 2)).empty());
  // Reports of neighbouring steps may alternate.
  EXPECT_EQ(ledger.Add(PartOfStep(1, 2)).size(), 1U);
  EXPECT_EQ(ledger.StateOf(1), v1::RECEIPT_STATE_USED);
  EXPECT_TRUE(ledger.Add(PartOfStep(3, 2)).empty());
  const auto closed = ledger.Add(PartOfStep(4, 1));
  ASSERT_EQ(closed.size(), 2U);
  EXPECT_FALSE(closed[0].is_complete);
  EXPECT_EQ(closed[0].State(), v1::RECEIPT_STATE_UNSPECIFIED);
  EXPECT_EQ(closed[1].State(), v1::RECEIPT_STATE_USED);
  EXPECT_EQ(ledger.LastState(), "used");
  EXPECT_EQ(ledger.StateOf(2), v1::RECEIPT_STATE_UNSPECIFIED);
}

// Processes report when they are done, each with its own part of the truth.
TEST(StepLedger, TheOrderOfReportsChangesNothing) {
  std::vector<StepReport> reports(3, PartOfStep(1, 3));
  reports[0].applied.reset();
  reports[0].issued->tokens = 4;
  reports[1].issued.reset();
  reports[1].applied = Receipt{.fingerprint = 2, .tokens = 5};
  std::vector<size_t> order = {0, 1, 2};
  do {
    for (size_t other = 0; other <= reports.size(); ++other) {
      StepLedger ledger;
      std::vector<StepLedger::ClosedStep> closed;
      for (const size_t i : order) {
        EXPECT_TRUE(closed.empty());
        reports[i].ratio_all_one = i != other;
        closed = ledger.Add(reports[i]);
      }
      ASSERT_EQ(closed.size(), 1U);
      EXPECT_TRUE(closed[0].is_complete);
      EXPECT_EQ(closed[0].ratio_all_one, other == reports.size());
      EXPECT_EQ(closed[0].issued->tokens, 5);
      EXPECT_EQ(closed[0].applied->tokens, 6);
      EXPECT_EQ(closed[0].issued->fingerprint, 2U);
      EXPECT_EQ(closed[0].applied->fingerprint, 3U);
      EXPECT_EQ(ledger.StateOf(1), closed[0].State());
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

// A run that went back to a checkpoint reports the same steps again.
TEST(StepLedger, AReportOfAClosedStepBeginsItAnew) {
  StepLedger ledger;
  EXPECT_EQ(ledger.Add(PartOfStep(5, 1)).size(), 1U);
  StepReport again = PartOfStep(5, 1);
  again.applied->fingerprint = 2;
  const auto closed = ledger.Add(again);
  ASSERT_EQ(closed.size(), 1U);
  EXPECT_EQ(closed[0].issued->tokens, 1);
  EXPECT_EQ(ledger.StateOf(5), v1::RECEIPT_STATE_REPLACED);
}

}  // namespace
}  // namespace counterweight::server
