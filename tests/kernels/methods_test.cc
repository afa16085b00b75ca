// The methods table.
#include "kernels/methods.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <set>
#include <string_view>

namespace counterweight::kernels {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

const Method& Find(std::string_view name) {
  const Method* method = FindMethod(name);
  EXPECT_NE(method, nullptr) << name;
  return method == nullptr ? Methods().front() : *method;
}

TEST(MethodsTable, EveryRowIsValidAndDescribed) {
  for (const Method& method : Methods()) {
    SCOPED_TRACE(method.name);
    std::vector<ParameterViolation> violations;
    const CorrectionSpec spec = MakeSpec(method, {}, &violations);
    EXPECT_THAT(violations, IsEmpty());
    for (const SpecViolation& violation : Validate(spec))
      ADD_FAILURE() << static_cast<int>(violation.field) << " "
                    << violation.reason;
    EXPECT_TRUE(method.summary.ends_with("."));
    EXPECT_TRUE(method.when_to_use.ends_with("."));
    EXPECT_FALSE(method.formula.empty());
    EXPECT_FALSE(method.reference.empty());
    EXPECT_FALSE(method.origin.empty());
    for (const MethodParameter& parameter : method.parameters)
      EXPECT_FALSE(parameter.description.empty()) << parameter.name;
  }
}

TEST(MethodsTable, UnitsAreThoseOfTheReference) {
  const std::set<std::string_view> units = {"",
                                            "ratio",
                                            "nats",
                                            "probability",
                                            "fraction",
                                            "advantage * nat",
                                            "advantage / nat",
                                            "advantage / nat^2"};
  for (const Method& method : Methods()) {
    for (const MethodParameter& parameter : method.parameters)
      EXPECT_TRUE(units.contains(parameter.unit))
          << method.name << " " << parameter.name;
  }
}

// Matches whole words: "upper" is not in "keep_upper".
bool Mentions(std::string_view text, std::string_view word) {
  const auto is_letter = [&](size_t at) {
    return at < text.size() && (std::isalnum(text[at]) || text[at] == '_');
  };
  for (size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + 1)) {
    if (!is_letter(at - 1) && !is_letter(at + word.size())) return true;
  }
  return false;
}

TEST(MethodsTable, FormulasNameEveryParameterAndTheRatio) {
  for (const Method& method : Methods()) {
    SCOPED_TRACE(method.name);
    for (const MethodParameter& parameter : method.parameters)
      EXPECT_TRUE(Mentions(method.formula, parameter.name)) << parameter.name;
    std::vector<ParameterViolation> none;
    const CorrectionSpec spec = MakeSpec(method, {}, &none);
    const std::string_view ratio =
        spec.drift_source == RatioSource::kOldRollout ? "old - rollout"
        : spec.drift_source == RatioSource::kCurrentRollout
            ? "current - rollout"
            : "current - old";
    EXPECT_TRUE(Mentions(method.formula, ratio)) << method.formula;
  }
}

TEST(MethodsTable, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const Method& method : Methods()) {
    EXPECT_TRUE(names.insert(method.name).second) << method.name;
    std::set<std::string_view> parameters;
    for (const MethodParameter& parameter : method.parameters)
      EXPECT_TRUE(parameters.insert(parameter.name).second)
          << method.name << " " << parameter.name;
  }
}

TEST(MethodsTable, FindMethodFindsEveryRowAndNothingElse) {
  for (const Method& method : Methods())
    EXPECT_EQ(FindMethod(method.name), &method);
  EXPECT_EQ(FindMethod(""), nullptr);
  EXPECT_EQ(FindMethod("no_such_method"), nullptr);
}

TEST(MethodsTable, HoldsThePresetsOfTheField) {
  int verl = 0;
  for (const Method& method : Methods()) {
    std::vector<ParameterViolation> none;
    const CorrectionSpec spec = MakeSpec(method, {}, &none);
    if (spec.loss.surrogate == Surrogate::kNone)
      verl += method.origin == "verl";
  }
  EXPECT_EQ(verl, 19);
  for (const char* name : {"token_tis", "seq_mis", "geo_rs_token_tis", "icepop",
                           "opsm", "reinforce_pro"})
    Find(name);
}

TEST(MethodsTable, HoldsEveryLoss) {
  for (const char* name :
       {"ppo_clip", "ppo_two_sided", "gspo", "gspo_token", "cispo", "sapo",
        "reinforce", "gpg", "dro", "dppo_tv", "dppo_kl", "geo_mean", "luspo",
        "vespo", "rollout_is", "kl_cov", "clip_cov", "cross_entropy",
        "importance_sampling"}) {
    std::vector<ParameterViolation> none;
    EXPECT_NE(MakeSpec(Find(name), {}, &none).loss.surrogate, Surrogate::kNone)
        << name;
  }
  std::set<Surrogate> surrogates;
  for (const Method& method : Methods()) {
    std::vector<ParameterViolation> none;
    surrogates.insert(MakeSpec(method, {}, &none).loss.surrogate);
  }
  EXPECT_THAT(surrogates, SizeIs(static_cast<size_t>(Surrogate::kLast) + 1));
}

TEST(MethodsTable, LossesAreAveragedAsTheirPapersDo) {
  const auto reduction = [](std::string_view name) {
    std::vector<ParameterViolation> none;
    return MakeSpec(Find(name), {}, &none).loss.reduction;
  };
  const LossReduction tokens = {BatchCount::kTokens, RowCount::kOne};
  const LossReduction row_means = {BatchCount::kNonemptyRows,
                                   RowCount::kTokens};
  const LossReduction row_sums = {BatchCount::kNonemptyRows, RowCount::kOne};
  const LossReduction sum = {BatchCount::kOne, RowCount::kOne};
  for (const char* name : {"ppo_clip", "dapo", "cispo", "dro", "vespo", "gpg"})
    EXPECT_EQ(reduction(name), tokens) << name;
  for (const char* name : {"grpo", "gspo", "gspo_token", "geo_mean", "sapo"})
    EXPECT_EQ(reduction(name), row_means) << name;
  EXPECT_EQ(reduction("luspo"), row_sums);
  EXPECT_EQ(reduction("cross_entropy"), sum);
}

TEST(MethodsTable, EveryParameterReachesTheSpec) {
  for (const Method& method : Methods()) {
    for (const MethodParameter& parameter : method.parameters) {
      std::vector<ParameterViolation> violations;
      const double other = parameter.default_value == 0
                               ? 0.25
                               : parameter.default_value * 1.0009765625;
      const CorrectionSpec spec =
          MakeSpec(method, {{std::string(parameter.name), other}}, &violations);
      EXPECT_THAT(violations, IsEmpty());
      EXPECT_FALSE(spec == MakeSpec(method, {}, &violations))
          << method.name << " " << parameter.name;
      for (const SpecViolation& violation : Validate(spec))
        ADD_FAILURE() << method.name << " " << parameter.name << ": "
                      << static_cast<int>(violation.field) << " "
                      << violation.reason;
    }
  }
}

TEST(MethodsTable, TokenTisIsATruncatedTokenWeight) {
  std::vector<ParameterViolation> violations;
  const Method& method = Find("token_tis");
  ASSERT_THAT(method.parameters, SizeIs(1));
  const CorrectionSpec spec = MakeSpec(
      method, {{std::string(method.parameters[0].name), 3.5}}, &violations);
  EXPECT_THAT(violations, IsEmpty());
  EXPECT_EQ(spec.weight.level, Level::kToken);
  EXPECT_EQ(spec.weight.bound, Bound::kTruncate);
  EXPECT_EQ(spec.weight.source, RatioSource::kOldRollout);
  EXPECT_EQ(spec.weight.upper, 3.5);
  EXPECT_EQ(spec.weight.token_clamp, 20);
  EXPECT_EQ(spec.num_rules, 0);
}

TEST(MethodsTable, UnknownParametersAndNaNAreViolations) {
  std::vector<ParameterViolation> violations;
  const Method& method = Find("token_tis");
  MakeSpec(method,
           {{"no_such_parameter", 1},
            {std::string(method.parameters[0].name), std::nan("")}},
           &violations);
  std::set<std::string> parameters;
  for (const ParameterViolation& violation : violations)
    parameters.insert(violation.parameter);
  EXPECT_EQ(parameters,
            (std::set<std::string>{"no_such_parameter",
                                   std::string(method.parameters[0].name)}));
}

}  // namespace
}  // namespace counterweight::kernels
