// The order of walks for each kind of plan.
#include "kernels/walk/schedule.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/walk/make_plan.h"

namespace counterweight::kernels {
namespace {

constexpr RowWalk kAnyOrder{.any_order = true, .fuses = true};
constexpr RowWalk kInOrder{.any_order = false, .fuses = true};
constexpr RowWalk kWholeRow{
    .any_order = false, .fuses = true, .shortens = true};

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
      case StepKind::kRowRatioLoss:
        text += 'R';
        break;
      case StepKind::kOutputsThenGradient:
        text += 'G';
        break;
    }
    if (step.rows == StepRows::kFired) text += '\'';
    if (step.rows == StepRows::kClean) text += 'c';
    if (step.rows == StepRows::kOneSegment) text += '1';
    if (step.replaces > 0) text += std::to_string(step.replaces);
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
  EXPECT_EQ(Steps(ScheduleOf(plan, Purpose::kOutputs, kAnyOrder)), "IBD");
  EXPECT_EQ(Steps(ScheduleOf(plan, Purpose::kOutputs,
                             {.any_order = true, .fuses = false})),
            "ISDO");
  EXPECT_EQ(Steps(ScheduleOf(plan, Purpose::kStatistics, kAnyOrder)), "ISD");
}

TEST(Schedule, RowsInWhichARuleFiredAreWrittenAgain) {
  const Plan plan = MakePlan(SequenceRule());
  EXPECT_EQ(Steps(ScheduleOf(plan, Purpose::kOutputs, kAnyOrder)), "IBDO'");
  EXPECT_EQ(Steps(ScheduleOf(plan, Purpose::kOutputs,
                             {.any_order = true, .fuses = false})),
            "ISDO");
}

TEST(Schedule, ALossOfWholeRowsIsAddedUpBeforeItIsWritten) {
  const Plan plan = MakePlan(Gspo());
  EXPECT_EQ(Steps(ScheduleOf(plan, Purpose::kOutputs, kAnyOrder)), "ISDoLOL");
}

// Rows that one thread holds are walked once less: all of them where nothing
// but the mask and the advantages is read again, else those of one segment.
TEST(Schedule, AThreadThatHoldsARowLeavesItsGradientForTheEnd) {
  CorrectionSpec spec = Gspo();
  spec.loss.metrics_source = spec.drift_source;
  EXPECT_EQ(Steps(ScheduleOf(MakePlan(spec), Purpose::kOutputs, kWholeRow)),
            "ISDRc5G14oLOL");
  EXPECT_EQ(Steps(ScheduleOf(MakePlan(spec), Purpose::kOutputs, kInOrder)),
            "ISDoLOL");
  spec.weight.level = Level::kToken;
  EXPECT_EQ(Steps(ScheduleOf(MakePlan(spec), Purpose::kOutputs, kWholeRow)),
            "ISDG14oLOL");
  spec.loss.kl.estimator = KlEstimator::kK3;
  EXPECT_EQ(Steps(ScheduleOf(MakePlan(spec), Purpose::kOutputs, kWholeRow)),
            "ISDoLOL");
  spec = Gspo();
  spec.non_finite = NonFinitePolicy::kDrop;
  EXPECT_EQ(Steps(ScheduleOf(MakePlan(spec), Purpose::kOutputs, kWholeRow)),
            "ISDoLOL");
}

TEST(Schedule, RunningMeansInAnyOrderTakeOnePassMore) {
  CorrectionSpec spec = SequenceRule();
  spec.rules[0].aggregation = Aggregation::kPrefixMean;
  const Plan plan = MakePlan(spec);
  EXPECT_EQ(Steps(ScheduleOf(plan, Purpose::kStatistics, kInOrder)), "ISD");
  EXPECT_EQ(Steps(ScheduleOf(plan, Purpose::kStatistics, kAnyOrder)), "ISdSD");
}

TEST(Schedule, RunningMeansInOrderStartFromWhatWasWalked) {
  CorrectionSpec spec = SequenceRule();
  spec.rules[0].aggregation = Aggregation::kPrefixMean;
  EXPECT_EQ(Steps(ScheduleOf(MakePlan(spec), Purpose::kOutputs, kInOrder)),
            "IBD");
  spec.num_rules = 2;
  spec.rules[1] = SequenceRule().rules[0];
  EXPECT_EQ(Steps(ScheduleOf(MakePlan(spec), Purpose::kOutputs, kInOrder)),
            "IBDO'");
}

TEST(Schedule, SelectionKeysAreWrittenOnceRulesAreDecided) {
  CorrectionSpec spec = SequenceRule();
  spec.loss.surrogate = Surrogate::kKlCov;
  const Plan plan = MakePlan(spec);
  EXPECT_EQ(Steps(ScheduleOf(plan, Purpose::kSelectionKeys, kAnyOrder)),
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
      ScheduleOf(MakePlan(spec), Purpose::kOutputs, kAnyOrder);
  EXPECT_EQ(Steps(schedule).substr(0, 5), "ISdSd");
  EXPECT_LE(schedule.num_steps, Schedule::kMaxSteps);
  EXPECT_EQ(schedule.num_steps, 1 + 2 * (kMaxRules + 2) + 4);
}

}  // namespace
}  // namespace counterweight::kernels
