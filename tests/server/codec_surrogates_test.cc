#include "server/engine/codec_surrogates.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "google/protobuf/descriptor.h"
#include "kernels/surrogates/list.h"

namespace counterweight::server {
namespace {

TEST(CodecSurrogates, EachOfTheKernelsHasANameOnTheWire) {
  std::set<v1::Surrogate> wires;
  for (int s = 1; s < kernels::kNumSurrogates; ++s) {
    const auto surrogate = static_cast<kernels::Surrogate>(s);
    const v1::Surrogate wire =
        SurrogateOf(surrogate, kernels::LossLevel::kToken, false);
    EXPECT_NE(wire, v1::SURROGATE_UNSPECIFIED) << kernels::Name(surrogate);
    wires.insert(wire);
  }
  EXPECT_EQ(wires.size(), kernels::kNumSurrogates - 1u);
}

TEST(CodecSurrogates, EachOfTheWireIsOneOfTheKernels) {
  for (int s = 1; s < v1::Surrogate_ARRAYSIZE; ++s) {
    const auto wire = static_cast<v1::Surrogate>(s);
    const auto row = FindSurrogate(wire);
    ASSERT_TRUE(row.has_value()) << v1::Surrogate_Name(wire);
    const bool sums_rows = wire == v1::SURROGATE_LUSPO;
    const v1::Surrogate same =
        SurrogateOf(row->surrogate, row->level, sums_rows);
    // Both are REINFORCE.
    EXPECT_EQ(same, wire == v1::SURROGATE_GPG ? v1::SURROGATE_REINFORCE : wire);
  }
  EXPECT_FALSE(FindSurrogate(v1::SURROGATE_UNSPECIFIED).has_value());
  EXPECT_FALSE(FindSurrogate(static_cast<v1::Surrogate>(99)).has_value());
}

TEST(CodecSurrogates, EachNumberIsAFieldThatCanBeAbsent) {
  for (const kernels::LossParameterInfo& info : kernels::kLossParameters) {
    const auto* const field =
        v1::PolicyLoss::descriptor()->FindFieldByName(info.name);
    ASSERT_NE(field, nullptr) << info.name;
    EXPECT_EQ(field->cpp_type(),
              google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE);
    v1::PolicyLoss loss;
    EXPECT_FALSE(NumberOf(loss, info.parameter).has_value()) << info.name;
    SetNumber(info.parameter, 0.0, &loss);
    EXPECT_EQ(NumberOf(loss, info.parameter), 0.0) << info.name;
  }
}

// A number of the contract that the table lacks would never be read.
TEST(CodecSurrogates, EveryNumberOfTheWireIsInTheTable) {
  std::set<std::string> names = {"norm_length"};  // of the reduction
  for (const auto& info : kernels::kLossParameters) names.insert(info.name);
  const auto* const message = v1::PolicyLoss::descriptor();
  for (int i = 0; i < message->field_count(); ++i) {
    const auto* const field = message->field(i);
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE)
      continue;
    EXPECT_EQ(names.count(std::string(field->name())), 1u) << field->name();
  }
}

}  // namespace
}  // namespace counterweight::server
