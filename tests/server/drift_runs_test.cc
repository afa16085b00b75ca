// Which runs have series and for how long, and the steps that gauges show.
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/partial_sums.h"
#include "server/engine/codec_publication.h"
#include "tests/server/drift_series_fixture.h"

namespace counterweight::server {
namespace {

TEST_F(DriftSeriesTest, ARunBelongsToTheClientThatBroughtIt) {
  Publish(TwoTokens(), "shared", "", "a");
  Publish(TwoTokens(), "shared", "", "b");
  Publish(TwoTokens(), "b1", "", "b");
  Publish(TwoTokens(), "b2", "", "b");
  EXPECT_TRUE(HasRun("shared")) << "it is none of b's two";
  EXPECT_TRUE(HasRun("b1"));
  EXPECT_TRUE(HasRun("b2"));
  EXPECT_EQ(Value("counterweight_drift_batches_total", "shared"), 2);
}

TEST_F(DriftSeriesTest, AClientWithManyRunsTakesNoOthersPlace) {
  Publish(TwoTokens(), "a1", "", "a");
  for (const char* const run : {"b1", "b2", "b3", "b4"}) {
    Publish(TwoTokens(), run, "", "b");
  }
  EXPECT_TRUE(HasRun("a1")) << "the idlest of all, but another client's";
  EXPECT_FALSE(HasRun("b2"));
  EXPECT_TRUE(HasRun("b3"));
  EXPECT_TRUE(HasRun("b4"));
}

TEST_F(DriftSeriesTest, TheNumberOfRunsIsThatOfTheLabelledOnes) {
  const auto runs = [this] {
    return Total("counterweight_drift_runs").gauge.value;
  };
  EXPECT_EQ(runs(), 0);
  Publish(TwoTokens(), "");
  EXPECT_EQ(runs(), 0);
  Publish(TwoTokens(), "r1");
  Publish(TwoTokens(), "r1");
  EXPECT_EQ(runs(), 1);
  for (const char* const run : {"r2", "r3", "r4"}) Publish(TwoTokens(), run);
  EXPECT_EQ(runs(), 2) << "a client has two at most";
  Publish(TwoTokens(), "other", "", "b");
  EXPECT_EQ(runs(), 3);
  now_ += std::chrono::hours(10);
  series_.HideOldGauges();
  EXPECT_EQ(runs(), 3) << "only gauges leave";
}

TEST_F(DriftSeriesTest, ARunThatReturnsBeginsAnew) {
  Publish(TwoTokens(), "r1", "id");
  Publish(TwoTokens(), "r1", "id-2");
  Publish(TwoTokens(), "r2", "id");
  Publish(TwoTokens(), "r3", "id");
  ASSERT_FALSE(HasRun("r1"));
  const double before =
      Total("counterweight_corrected_batches_total").counter.value;
  EXPECT_EQ(before, 4) << "what left counts on in the totals";
  Publish(TwoTokens(), "r1", "id");
  EXPECT_EQ(Value("counterweight_drift_batches_total", "r1"), 1);
  EXPECT_EQ(Value("counterweight_drift_tokens_total", "r1"), 2);
  // The ids of runs that stay are known on.
  Publish(TwoTokens(), "r3", "id");
  EXPECT_EQ(Value("counterweight_drift_batches_total", "r3"), 1);
  EXPECT_EQ(Total("counterweight_corrected_batches_total").counter.value,
            before + 1);
}

TEST_F(DriftSeriesTest, ARetryDoesNotCount) {
  Publish(TwoTokens(), "r1", "id");
  Publish(TwoTokens(), "r2", "id");
  now_ += std::chrono::seconds(5);
  Publish(TwoTokens(), "r1", "id");
  for (const auto& each : series_.Runs()) {
    EXPECT_EQ(each.seconds_ago, 5) << each.run;
  }
  Publish(TwoTokens(), "r3", "id");
  EXPECT_FALSE(HasRun("r1")) << "the idlest all the same";
}

TEST_F(DriftSeriesTest, TheTimeSinceTheLastBatchIsInSeconds) {
  Publish(TwoTokens(), "a");
  now_ += std::chrono::milliseconds(1500);
  kernels::BatchSums empty{};
  empty.num_sequences = 1;
  Publish(empty, "b");
  now_ += std::chrono::milliseconds(1000);
  const auto runs = series_.Runs();
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].run, "a");
  EXPECT_EQ(runs[0].seconds_ago, 2.5);
  EXPECT_EQ(runs[1].run, "b");
  EXPECT_EQ(runs[1].seconds_ago, 1.0) << "one without tokens is a batch too";
}

TEST_F(DriftSeriesTest, NoOldGaugeOfAnyRunStays) {
  for (const char* const run : {"", "a", "b"}) Publish(TwoTokens(), run);
  now_ += std::chrono::minutes(10) + std::chrono::nanoseconds(1);
  series_.HideOldGauges();
  series_.HideOldGauges();
  for (const char* const run : {"", "a", "b"}) {
    EXPECT_TRUE(std::isnan(Value("counterweight_drift_kl_nats", run))) << run;
    EXPECT_TRUE(HasRun(run)) << run;
  }
  // A batch without tokens brings none back.
  kernels::BatchSums empty{};
  empty.num_sequences = 1;
  Publish(empty, "a");
  EXPECT_TRUE(std::isnan(Value("counterweight_drift_kl_nats", "a")));
  Publish(TwoTokens(), "a");
  EXPECT_EQ(Value("counterweight_drift_kl_nats", "a"), 0);
}

TEST_F(DriftSeriesTest, SumsOfStepsAndCausesLeaveARunThatIsOver) {
  const std::string tokens = "counterweight_drift_eight_steps_tokens";
  const std::string cause = "counterweight_doctor_cause_k3_nats";
  for (int i = 0; i < 8; ++i) Publish(TwoTokens(), "r");
  series_.CountExamined("r", "a", {.causes = {{"update", 0.5}}});
  Publish(TwoTokens(), "other");
  EXPECT_EQ(Value(tokens, "r"), 16);
  EXPECT_EQ(Value(cause, "r"), 0.5);
  EXPECT_TRUE(std::isnan(Value(tokens, "other")));
  now_ += std::chrono::minutes(11);
  Publish(TwoTokens(), "other");
  series_.HideOldGauges();
  EXPECT_TRUE(std::isnan(Value(tokens, "r")));
  EXPECT_TRUE(std::isnan(Value(cause, "r")));
  Publish(TwoTokens(), "r");
  EXPECT_EQ(Value(tokens, "r"), 16);
  // A third run of the client removes the idlest, with all its series.
  Publish(TwoTokens(), "other");
  Publish(TwoTokens(), "third");
  EXPECT_TRUE(std::isnan(Value(tokens, "r")));
  EXPECT_TRUE(std::isnan(Value(cause, "r")));
}

// A trainer may name a report as the batch of its step.
TEST_F(DriftSeriesTest, ReportsHaveIdsOfTheirOwn) {
  const auto report = [&](const std::string& id, const std::string& run,
                          const std::string& client) {
    StepReport one;
    one.request_id = id;
    one.run = run;
    series_.Report(one, client);
    return Value("counterweight_step_steps_total", run);
  };
  Publish(TwoTokens(), "r", "id");
  EXPECT_EQ(report("id", "r", "a"), 1);
  EXPECT_EQ(report("id", "r", "a"), 1) << "sent again";
  EXPECT_EQ(report("id", "r", "b"), 2) << "another client's";
  EXPECT_EQ(report("id", "s", "a"), 1) << "another run's";
  EXPECT_EQ(report("other", "r", "a"), 3);
  Publish(TwoTokens(), "r", "other");
  EXPECT_EQ(Value("counterweight_drift_batches_total", "r"), 2);
}

// A run may correct nothing here, and yet be trained.
TEST_F(DriftSeriesTest, AReportIsALifeSign) {
  Publish(TwoTokens(), "older");
  Publish(TwoTokens(), "idle");
  now_ += std::chrono::seconds(5);
  StepReport report;
  report.run = "older";
  series_.Report(report, "a");
  for (const auto& each : series_.Runs()) {
    EXPECT_EQ(each.seconds_ago, each.run == "older" ? 0 : 5) << each.run;
  }
  Publish(TwoTokens(), "third");
  EXPECT_TRUE(HasRun("older"));
  EXPECT_FALSE(HasRun("idle"));
}

// Parts of steps, each of two tokens; a step has those of its parts.
class DriftStepsTest : public DriftSeriesTest {
 protected:
  void PublishPart(int64_t step, const std::string& request_id = "") {
    const PublishedBatch batch = Published({}, {}, TwoTokens());
    StepPart part{.step = step,
                  .sums = kernels::NoSums({}, /*has_versions=*/false),
                  .publish = [](const kernels::PartialSums& all) {
                    kernels::BatchSums sums = TwoTokens();
                    sums.tokens = 2 * static_cast<int64_t>(
                                          all.whole[kernels::kPartialParts]);
                    return Published({}, {}, sums);
                  }};
    part.sums.whole[kernels::kPartialParts] = 1;
    series_.Publish({.client = "a",
                     .run = "r",
                     .policy_version = std::nullopt,
                     .request_id = request_id,
                     .batch = &batch,
                     .part = &part});
  }
  double Gauge(const std::string& name) {
    return Value("counterweight_drift_" + name, "r");
  }
};

TEST_F(DriftStepsTest, GaugesShowTheNewestStepWithAllItsParts) {
  for (int i = 1; i <= 3; ++i) {
    PublishPart(7);
    EXPECT_EQ(Gauge("step"), 7);
    EXPECT_EQ(Gauge("step_parts"), i);
    EXPECT_EQ(Gauge("step_tokens"), 2 * i);
  }
  // A late one counts, and moves no gauge.
  for (const int64_t late : {6, 6, 1}) {
    PublishPart(late);
    EXPECT_EQ(Gauge("step"), 7);
    EXPECT_EQ(Gauge("step_parts"), 3);
  }
  EXPECT_EQ(Gauge("batches_total"), 6);
  EXPECT_EQ(Gauge("tokens_total"), 12);
  PublishPart(8);
  EXPECT_EQ(Gauge("step"), 8);
  EXPECT_EQ(Gauge("step_parts"), 1);
  PublishPart(7);
  EXPECT_EQ(Gauge("step"), 8);
}

TEST_F(DriftStepsTest, ARetryOfAPartIsNoSecondPart) {
  for (int i = 0; i < 3; ++i) PublishPart(7, "id");
  PublishPart(7, "another");
  EXPECT_EQ(Gauge("step_parts"), 2);
  EXPECT_EQ(Gauge("batches_total"), 2);
}

// A late part is no sign of life of what the gauges show.
TEST_F(DriftStepsTest, LatePartsRenewNoGauge) {
  PublishPart(7);
  now_ += std::chrono::minutes(10);
  PublishPart(6);
  now_ += std::chrono::seconds(1);
  series_.HideOldGauges();
  EXPECT_TRUE(std::isnan(Gauge("step")));
  EXPECT_EQ(Gauge("batches_total"), 2);
}

TEST_F(DriftStepsTest, ABatchWithoutAStepShowsItself) {
  PublishPart(7);
  PublishPart(7);
  kernels::BatchSums sums = TwoTokens();
  sums.drift.log_ratio = 1;
  Publish(sums, "r");
  EXPECT_EQ(Gauge("kl_nats"), -0.5);
  EXPECT_EQ(Gauge("step"), 7) << "the last that was named";
  PublishPart(7);
  EXPECT_EQ(Gauge("kl_nats"), 0);
  EXPECT_EQ(Gauge("step_parts"), 3);
}

}  // namespace
}  // namespace counterweight::server
