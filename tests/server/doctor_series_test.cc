#include "server/observe/doctor_series.h"

#include <chrono>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace counterweight::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class DoctorSeriesTest : public testing::Test {
 protected:
  // Counts so many batches; returns how many of them were examined.
  int Pass(int64_t batches, const std::vector<Fault>& faults = {}) {
    int examined = 0;
    for (int64_t i = 0; i < batches; ++i) {
      const bool is_due = series_.IsDue();
      series_.CountBatch(now_);
      if (!is_due) continue;
      series_.Count({.faults = faults}, now_);
      ++examined;
    }
    return examined;
  }

  void Count(const std::vector<Fault>& faults) {
    series_.Count({.faults = faults}, now_);
  }
  std::string Page() {
    return prometheus::TextSerializer().Serialize(registry_.Collect());
  }

  prometheus::Registry registry_;
  DriftMetrics metrics_{&registry_};
  TimedGauge::Time now_{std::chrono::hours(1)};
  DoctorSeries series_{&metrics_, {{"run", "r"}}};
};

TEST_F(DoctorSeriesTest, ExaminesTheFirstAndThenOneOfMany) {
  EXPECT_EQ(Pass(DoctorSeries::kFirst), DoctorSeries::kFirst);
  EXPECT_EQ(Pass(DoctorSeries::kEvery - 1), 0);
  EXPECT_EQ(Pass(1), 1);
  EXPECT_EQ(Pass(10 * DoctorSeries::kEvery), 10);
}

TEST_F(DoctorSeriesTest, ExaminesEachBatchAfterAFault) {
  const std::vector<Fault> faults = {{"shifted", "error"}};
  EXPECT_EQ(Pass(20, faults), 20);
  EXPECT_EQ(Pass(20), 1);
}

// Every healthy batch of an engine in bfloat16 has one.
TEST_F(DoctorSeriesTest, ANoteIsNoFault) {
  EXPECT_EQ(Pass(20, {{"bf16_rounded", "note"}}), DoctorSeries::kFirst);
  EXPECT_THAT(series_.LastFaults(), IsEmpty());
}

TEST_F(DoctorSeriesTest, CountsFindingsErrorsFirst) {
  Count({{"bf16_rounded", "note"},
         {"rows_permuted", "warning"},
         {"shifted", "error"}});
  Count({{"shifted", "error"}});
  EXPECT_THAT(series_.LastFaults(), ElementsAre("shifted"));
  const std::string page = Page();
  for (const char* line :
       {"doctor_batches_total{run=\"r\"} 2\n",
        "doctor_findings_total{finding=\"shifted\",run=\"r\",severity="
        "\"error\"} 2\n",
        "doctor_findings_total{finding=\"bf16_rounded\",run=\"r\",severity="
        "\"note\"} 1\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  Count({{"rows_permuted", "warning"}, {"shifted", "error"}});
  EXPECT_THAT(series_.LastFaults(), ElementsAre("shifted", "rows_permuted"));
}

std::string Gauge(const std::string& cause, const std::string& value) {
  return "doctor_cause_k3_nats{cause=\"" + cause + "\",run=\"r\"} " + value +
         "\n";
}

TEST_F(DoctorSeriesTest, ShowsTheCausesOfTheLastExaminedBatch) {
  EXPECT_THAT(Page(), Not(HasSubstr("cause=")));
  series_.Count({.causes = {{"engine_staleness", 0.5},
                            {"update", 0.25},
                            {"interaction", -0.125}},
                 .why = "k3 0.62 ..."},
                now_);
  EXPECT_EQ(series_.LastWhy(), "k3 0.62 ...");
  EXPECT_THAT(Page(), AllOf(HasSubstr(Gauge("engine_staleness", "0.5")),
                            HasSubstr(Gauge("update", "0.25")),
                            HasSubstr(Gauge("interaction", "-0.125"))));
  // The next one has no current log-probs.
  series_.Count({.causes = {{"engine_staleness", 2.0}}, .why = "k3 2 ..."},
                now_);
  EXPECT_THAT(Page(), HasSubstr(Gauge("engine_staleness", "2")));
  EXPECT_THAT(Page(), Not(HasSubstr("cause=\"update\"")));
  EXPECT_EQ(series_.LastWhy(), "k3 2 ...");
}

// They leave with the run's batches, not with its examinations.
// Sums of rows of one token with k3 1 or 3 times `level`, which is a power of
// two.
std::vector<double> RowsOf(int rows, double level) {
  std::vector<double> sums(kernels::doctor::kAuditNumbers);
  sums[0] = sums[1] = rows;
  // The bins of sums below 2^65 begin at the third of eight.
  double* const bins = sums.data() + 2;
  bins[3] = 2.0 * level * rows;
  bins[8 + 3] = 5.0 * level * level * rows;
  bins[16 + 3] = 2.0 * level * rows;
  bins[24 + 3] = rows;
  return sums;
}

TEST_F(DoctorSeriesTest, ShowsAuditedRowsUntilTheDriftChanges) {
  series_.CountAudited(RowsOf(16, 1.0), now_);
  EXPECT_EQ(series_.LastAudit(),
            "k3 2 from 16 audited rows; audit more: 16 rows until there is an "
            "interval");
  const std::string of_run = R"({bound="mean",run="r"} )";
  EXPECT_THAT(Page(), AllOf(HasSubstr("counterweight_doctor_audited_k3_nats" +
                                      of_run + "2\n"),
                            HasSubstr(R"(audited_rows_total{run="r"} 16)"),
                            Not(HasSubstr(R"(bound="low")"))));
  series_.CountAudited(RowsOf(48, 1.0), now_);
  EXPECT_THAT(Page(),
              AllOf(HasSubstr(R"(audited_rows_total{run="r"} 64)"),
                    HasSubstr(R"(bound="low")"), HasSubstr(R"(bound="high")")));
  // Another drift begins anew, and is no mean with the one before.
  series_.CountAudited(RowsOf(64, 4.0), now_);
  EXPECT_THAT(Page(), AllOf(HasSubstr("counterweight_doctor_audited_k3_nats" +
                                      of_run + "8\n"),
                            HasSubstr(R"(audited_rows_total{run="r"} 128)")));
  series_.HideGaugesBefore(now_ + std::chrono::seconds(1));
  EXPECT_THAT(Page(), Not(HasSubstr("audited_k3_nats{")));
}

TEST_F(DoctorSeriesTest, CausesLeaveWithTheRunsLastBatch) {
  series_.Count({.causes = {{"update", 0.25}}, .why = "k3 0.25 ..."}, now_);
  now_ += std::chrono::hours(1);
  series_.CountBatch(now_);
  series_.HideGaugesBefore(now_);
  EXPECT_THAT(Page(), HasSubstr(Gauge("update", "0.25")));
  series_.HideGaugesBefore(now_ + std::chrono::hours(1));
  EXPECT_THAT(Page(), Not(HasSubstr("cause=")));
  series_.CountBatch(now_);
  EXPECT_THAT(Page(), HasSubstr(Gauge("update", "0.25")));
}

}  // namespace
}  // namespace counterweight::server
