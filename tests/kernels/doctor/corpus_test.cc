// Known faults have their names, and healthy batches none.
#include "tests/kernels/doctor/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace counterweight::kernels::doctor {
namespace {

using testing::IsSubsetOf;

TEST(DoctorCorpus, EachFaultHasItsName) {
  std::set<std::string> faults;
  for (const Case& each : Corpus()) {
    if (each.is_healthy()) continue;
    faults.insert(each.fault);
    const std::vector<std::string> names = NamesOf(ExamineCase(each));
    const bool is_named = std::any_of(
        each.expected.begin(), each.expected.end(), [&](const auto& name) {
          return std::find(names.begin(), names.end(), name) != names.end();
        });
    EXPECT_TRUE(is_named) << each.fault << " of " << each.origin << ": "
                          << testing::PrintToString(names);
  }
  EXPECT_EQ(faults.size(), 32u);
}

TEST(DoctorCorpus, HealthyBatchesAreNotAccused) {
  int healthy = 0;
  for (const Case& each : Corpus()) {
    if (!each.is_healthy()) continue;
    ++healthy;
    // A group that is all right or all wrong is no fault.
    EXPECT_THAT(NamesOf(ExamineCase(each)),
                IsSubsetOf({std::string("advantages_zero")}))
        << each.origin;
  }
  EXPECT_EQ(healthy, 15);
}

TEST(DoctorCorpus, ExamplesLieInTheMaskAndSentencesAreComplete) {
  for (const Case& each : Corpus()) {
    for (const Finding& finding : ExamineCase(each).findings) {
      const std::string sentence = Sentence(finding);
      EXPECT_EQ(sentence.find("unknown"), std::string::npos) << sentence;
      EXPECT_EQ(sentence.find('{'), std::string::npos) << sentence;
      EXPECT_GT(finding.confidence, 0.0) << sentence;
      EXPECT_LE(finding.confidence, 1.0) << sentence;
      if (finding.position < 0) continue;
      const int64_t place =
          each.offsets[static_cast<size_t>(finding.sequence)] +
          finding.position;
      EXPECT_LT(place, each.offsets[static_cast<size_t>(finding.sequence) + 1]);
      EXPECT_EQ(each.mask[static_cast<size_t>(place)], 1) << sentence;
    }
  }
}

TEST(DoctorCorpus, RepairsLeaveLessThanTheyFind) {
  for (const Case& each : Corpus()) {
    for (const Finding& finding : ExamineCase(each).findings) {
      if (std::isnan(finding.repaired)) continue;
      EXPECT_LT(finding.repaired, 0.66 * finding.observed) << each.origin;
    }
  }
}

// Values outside the mask are counted as present or not, and NaN is absent.
TEST(DoctorCorpus, NaNOutsideTheMaskIsNotSeen) {
  for (Case each : Corpus()) {
    const auto before = NamesOf(ExamineCase(each));
    for (size_t i = 0; i < each.mask.size(); ++i) {
      for (auto& values : each.values) {
        if (each.mask[i] != 0 || values[i] != 0.0f) continue;
        values[i] = std::numeric_limits<float>::quiet_NaN();
      }
    }
    EXPECT_EQ(NamesOf(ExamineCase(each)), before) << each.fault << each.origin;
  }
}

// Mask findings of the engine's zeros would be others if the batch were padded
// with something else than zeros; all else is the same.
TEST(DoctorCorpus, PaddedBatchesHaveTheSameFindings) {
  for (const Case& each : Corpus()) {
    if (each.fault == "count_off_by_one") continue;  // of packed buffers alone
    const size_t rows = each.offsets.size() - 1;
    int64_t width = 0;
    for (size_t row = 0; row < rows; ++row) {
      width = std::max(width, each.offsets[row + 1] - each.offsets[row] + 3);
    }
    Case padded = each;
    padded.offsets = {0};
    for (auto& values : padded.values) values.clear();
    padded.mask.clear();
    padded.versions.clear();
    for (size_t row = 0; row < rows; ++row) {
      padded.offsets.push_back(padded.offsets.back() + width);
      const auto whole = static_cast<size_t>(padded.offsets.back());
      const auto append = [&](auto* to, const auto& from) {
        to->insert(to->end(), from.begin() + each.offsets[row],
                   from.begin() + each.offsets[row + 1]);
        to->resize(whole);
      };
      for (int i = 0; i < 4; ++i) append(&padded.values[i], each.values[i]);
      append(&padded.mask, each.mask);
      append(&padded.versions, each.versions);
    }
    EXPECT_EQ(NamesOf(ExamineCase(padded)), NamesOf(ExamineCase(each)))
        << each.fault << each.origin;
  }
}

}  // namespace
}  // namespace counterweight::kernels::doctor
