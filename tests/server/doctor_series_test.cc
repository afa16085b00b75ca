#include "server/observe/doctor_series.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DoctorSeriesTest : public testing::Test {
 protected:
  // Counts so many batches; returns how many of them were examined.
  int Pass(int64_t batches, const std::vector<Fault>& faults = {}) {
    int examined = 0;
    for (int64_t i = 0; i < batches; ++i) {
      const bool is_due = series_.IsDue();
      series_.CountBatch();
      if (!is_due) continue;
      series_.Count(faults);
      ++examined;
    }
    return examined;
  }

  prometheus::Registry registry_;
  DriftMetrics metrics_{&registry_};
  DoctorSeries series_{&metrics_, {{"run", "r"}}};
};

TEST_F(DoctorSeriesTest, ExaminesTheFirstAndThenOneOfMany) {
  EXPECT_EQ(Pass(DoctorSeries::kFirst), DoctorSeries::kFirst);
  EXPECT_EQ(Pass(DoctorSeries::kEvery), 0);
  EXPECT_EQ(Pass(1), 1);
  EXPECT_EQ(Pass(10 * DoctorSeries::kEvery), 9);
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
  series_.Count({{"bf16_rounded", "note"},
                 {"rows_permuted", "warning"},
                 {"shifted", "error"}});
  series_.Count({{"shifted", "error"}});
  EXPECT_THAT(series_.LastFaults(), ElementsAre("shifted"));
  const std::string page =
      prometheus::TextSerializer().Serialize(registry_.Collect());
  for (const char* line :
       {"doctor_batches_total{run=\"r\"} 2\n",
        "doctor_findings_total{finding=\"shifted\",run=\"r\",severity="
        "\"error\"} 2\n",
        "doctor_findings_total{finding=\"bf16_rounded\",run=\"r\",severity="
        "\"note\"} 1\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  series_.Count({{"rows_permuted", "warning"}, {"shifted", "error"}});
  EXPECT_THAT(series_.LastFaults(), ElementsAre("shifted", "rows_permuted"));
}

}  // namespace
}  // namespace counterweight::server
