// The order of walks for each kind of plan.
#include "kernels/walk/schedule.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/walk/make_plan.h"

namespace counterweight::kernels {
namespace {

// Steps by their initials: I S D(ecide) B O L(oss); lower case where the step
// adds up the loss alone, ' after those for rows in which a rule fired.
std::string Steps(const Schedule& schedule) {
  std::string text;
  for (const Step& step : schedule) {
    switch (step.kind) {
      case StepKind::kInitialStates:
        text += 'I';
        break;
      case StepKind::kStatistics:
        text += 'S';
        break;
      case StepKind::kSettle:
        text += step.is_last ? "D" : "d";
        break;
      case StepKind::kBoth:
        text += 'B';
        break;
      case StepKind::kOutputs:
        text += step.loss_only ? 'o' : 'O';
        break;
      case StepKind::kSettleLoss:
        text += 'L';
        break;
    }
    if (step.fired_rows_only) text += '\'';
  }
  return text;
}

CorrectionSpec SequenceRule() {
  CorrectionSpec spec;
  spec.num_rules = 1;
  spec.rules[0].aggregation = Aggregation::kMean;
  spec.rules[0].lower = -1.0;
  spec.rules[0].upper = 1.0;
  return spec;
}

CorrectionSpec Gspo() {
  CorrectionSpec spec;
  spec.loss.surrogate = Surrogate::kPpoClip;
  spec.loss.level = LossLevel::kSequence;
  return spec;
}

TEST(Schedule, OneWalkDoesWhereOutputsDependOnNoSum) {
  const Plan plan = MakePlan(CorrectionSpec{});
  EXPECT_EQ(Steps(ScheduleOf(plan, Purpose::kOutputs, true, true)), "IBD");
  EXPECT_EQ(Steps(ScheduleOf(plan, Purpose::kOutputs, true, false)), "ISDO");
  EXPECT_EQ(Steps(ScheduleOf(plan, Purpose::kStatistics, true, true)), "ISD");
}

TEST(Schedule, RowsInWhichARuleFiredAreWrittenAgain) {
  const Plan plan = MakePlan(SequenceRule());
  EXPECT_EQ(Steps(ScheduleOf(plan, Purpose::kOutputs, true, true)), "IBDO'");
  EXPECT_EQ(Steps(ScheduleOf(plan, Purpose::kOutputs, true, false)), "ISDO");
}

TEST(Schedule, ALossOfWholeRowsIsAddedUpBeforeItIsWritten) {
  const Plan plan = MakePlan(Gspo());
  EXPECT_EQ(Steps(ScheduleOf(plan, Purpose::kOutputs, true, true)), "ISDoLOL");
}

TEST(Schedule, RunningMeansInAnyOrderTakeOnePassMore) {
  CorrectionSpec spec = SequenceRule();
  spec.rules[0].aggregation = Aggregation::kPrefixMean;
  const Plan plan = MakePlan(spec);
  EXPECT_EQ(Steps(ScheduleOf(plan, Purpose::kStatistics, false, true)), "ISD");
  EXPECT_EQ(Steps(ScheduleOf(plan, Purpose::kStatistics, true, true)), "ISdSD");
}

TEST(Schedule, RunningMeansInOrderStartFromWhatWasWalked) {
  CorrectionSpec spec = SequenceRule();
  spec.rules[0].aggregation = Aggregation::kPrefixMean;
  EXPECT_EQ(Steps(ScheduleOf(MakePlan(spec), Purpose::kOutputs, false, true)),
            "IBD");
  spec.num_rules = 2;
  spec.rules[1] = SequenceRule().rules[0];
  EXPECT_EQ(Steps(ScheduleOf(MakePlan(spec), Purpose::kOutputs, false, true)),
            "IBDO'");
}

TEST(Schedule, SelectionKeysAreWrittenOnceRulesAreDecided) {
  CorrectionSpec spec = SequenceRule();
  spec.loss.surrogate = Surrogate::kKlCov;
  const Plan plan = MakePlan(spec);
  EXPECT_EQ(Steps(ScheduleOf(plan, Purpose::kSelectionKeys, true, true)),
            "ISDO");
}

// Every rule depends on the one before it.
TEST(Schedule, TheLongestOneFits) {
  CorrectionSpec spec;
  spec.evaluation = Evaluation::kSequential;
  spec.num_rules = kMaxRules;
  for (RejectionRule& rule : spec.rules) {
    rule.aggregation = Aggregation::kPrefixMean;
    rule.upper = 1.0;
  }
  spec.weight.level = Level::kPrefix;
  spec.weight.after_rule = kMaxRules;
  spec.loss = Gspo().loss;
  const Schedule schedule =
      ScheduleOf(MakePlan(spec), Purpose::kOutputs, true, true);
  EXPECT_EQ(Steps(schedule).substr(0, 5), "ISdSd");
  EXPECT_LE(schedule.num_steps, Schedule::kMaxSteps);
  EXPECT_EQ(schedule.num_steps, 1 + 2 * (kMaxRules + 2) + 4);
}

}  // namespace
}  // namespace counterweight::kernels
