// The methods table.
#include "kernels/methods.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

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
    std::vector<SpecViolation> violations;
    const CorrectionSpec spec = MakeSpec(method, {}, &violations);
    EXPECT_THAT(violations, IsEmpty());
    for (const SpecViolation& violation : Validate(spec))
      ADD_FAILURE() << violation.field << " " << violation.reason;
    EXPECT_FALSE(method.summary.empty());
    EXPECT_FALSE(method.reference.empty());
    EXPECT_FALSE(method.origin.empty());
    for (const MethodParameter& parameter : method.parameters) {
      EXPECT_TRUE(parameter.unit == "ratio" || parameter.unit == "nats")
          << parameter.name;
      EXPECT_FALSE(parameter.description.empty()) << parameter.name;
    }
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
  for (const Method& method : Methods()) verl += method.origin == "verl";
  EXPECT_EQ(verl, 19);
  for (const char* name : {"token_tis", "seq_mis", "geo_rs_token_tis", "icepop",
                           "opsm", "reinforce_pro"})
    Find(name);
}

TEST(MethodsTable, EveryParameterReachesTheSpec) {
  for (const Method& method : Methods()) {
    for (const MethodParameter& parameter : method.parameters) {
      std::vector<SpecViolation> violations;
      const double other = parameter.default_value == 0
                               ? 0.25
                               : parameter.default_value * 1.0009765625;
      const CorrectionSpec spec =
          MakeSpec(method, {{std::string(parameter.name), other}}, &violations);
      EXPECT_THAT(violations, IsEmpty());
      EXPECT_NE(ToString(spec), ToString(MakeSpec(method, {}, &violations)))
          << method.name << " " << parameter.name;
    }
  }
}

TEST(MethodsTable, TokenTisIsATruncatedTokenWeight) {
  std::vector<SpecViolation> violations;
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
  std::vector<SpecViolation> violations;
  const Method& method = Find("token_tis");
  MakeSpec(method,
           {{"no_such_parameter", 1},
            {std::string(method.parameters[0].name), std::nan("")}},
           &violations);
  std::set<std::string> fields;
  for (const SpecViolation& violation : violations)
    fields.insert(violation.field);
  EXPECT_EQ(fields,
            (std::set<std::string>{
                "parameters[no_such_parameter]",
                "parameters[" + std::string(method.parameters[0].name) + "]"}));
}

}  // namespace
}  // namespace counterweight::kernels
