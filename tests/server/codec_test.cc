#include "server/engine/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/corrector.h"

namespace counterweight::server {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::string Bytes(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

void Add(v1::TensorRole role, v1::DType dtype, std::string data,
         v1::CorrectRequest* request) {
  v1::Tensor* tensor = request->add_tensors();
  tensor->set_role(role);
  tensor->set_dtype(dtype);
  tensor->set_data(std::move(data));
}

// Two rows of two tokens; old - rollout is 0, 1, 0, 0.
v1::CorrectRequest ValidRequest() {
  v1::CorrectRequest request;
  request.mutable_layout()->mutable_padded()->set_num_sequences(2);
  request.mutable_layout()->mutable_padded()->set_length(2);
  Add(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, v1::D_TYPE_F32,
      Bytes({-1, -2, -1, -1}), &request);
  Add(v1::TENSOR_ROLE_OLD_LOG_PROBS, v1::D_TYPE_F32, Bytes({-1, -1, -1, -1}),
      &request);
  Add(v1::TENSOR_ROLE_RESPONSE_MASK, v1::D_TYPE_U8, std::string(4, '\1'),
      &request);
  request.mutable_method()->mutable_preset()->set_name("token_tis");
  return request;
}

std::vector<std::string> Fields(const v1::CorrectRequest& request,
                                const RequestLimits& limits = {}) {
  std::vector<std::string> fields;
  for (const Violation& violation : Decode(request, limits, {}).violations) {
    fields.push_back(violation.field);
    EXPECT_FALSE(violation.description.empty());
  }
  return fields;
}

TEST(Codec, AValidRequestBecomesABatchAndAnAnswer) {
  const v1::CorrectRequest request = ValidRequest();
  const Result<Decoded> valid = Decode(request, {}, {});
  ASSERT_THAT(valid.violations, IsEmpty());
  const Decoded& decoded = valid.value;
  v1::CorrectResponse response;
  const kernels::Outputs outputs = AllocateOutputs(
      decoded.outputs, decoded.layout, PlaceInMessage, &response);
  const auto corrector = kernels::MakeCpuCorrector(1);
  const kernels::CorrectResult result =
      corrector->Correct(decoded.method.spec, BatchOf(decoded), outputs);
  ASSERT_EQ(result.status, kernels::CorrectStatus::kOk);
  ASSERT_THAT(Encode(decoded, result, &response), IsEmpty());
  ASSERT_EQ(response.tensors_size(), 2);
  // exp(1) is truncated at 2, everything else is exactly 1.
  EXPECT_EQ(response.tensors(0).role(), v1::TENSOR_ROLE_WEIGHTS);
  EXPECT_EQ(response.tensors(0).data(), Bytes({1, 2, 1, 1}));
  EXPECT_EQ(response.tensors(1).data(), std::string(4, '\1'));
  EXPECT_DOUBLE_EQ(response.metrics().at("kl"), -0.25);
  EXPECT_DOUBLE_EQ(response.metrics().at("weight_max"), 2.0);
  EXPECT_EQ(response.numerics_version(), kernels::kNumericsVersion);
}

TEST(Codec, AnEmptyRequestIsToldEverythingItLacks) {
  EXPECT_THAT(Fields({}),
              ElementsAre("layout", "tensors[RESPONSE_MASK]", "method"));
}

TEST(Codec, MissingLogProbsAreNamed) {
  v1::CorrectRequest request = ValidRequest();
  request.mutable_tensors()->DeleteSubrange(0, 2);
  EXPECT_THAT(Fields(request), ElementsAre("tensors[ROLLOUT_LOG_PROBS]",
                                           "tensors[OLD_LOG_PROBS]"));
}

TEST(Codec, SizesMustFitTheLayout) {
  // One byte less and one more, of each tensor.
  for (int i = 0; i < 3; ++i) {
    for (const int change : {-1, 1}) {
      v1::CorrectRequest request = ValidRequest();
      std::string* const data = request.mutable_tensors(i)->mutable_data();
      const size_t size = data->size() + static_cast<size_t>(change);
      data->resize(size, '\0');
      const Violations violations = Decode(request, {}, {}).violations;
      ASSERT_EQ(violations.size(), 1u) << i << ", " << size;
      EXPECT_EQ(violations[0].field, "tensors[" + std::to_string(i) + "].data");
      EXPECT_THAT(violations[0].description,
                  HasSubstr("has " + std::to_string(size) + " bytes"));
    }
  }
}

TEST(Codec, AStreamsInputsAreAlignedAndDisjoint) {
  v1::CorrectRequest request = ValidRequest();
  for (v1::Tensor& tensor : *request.mutable_tensors()) tensor.clear_data();
  const Result<Decoded> valid = Decode(request, {}, {.is_stream = true});
  ASSERT_THAT(valid.violations, IsEmpty());
  const Decoded& decoded = valid.value;
  EXPECT_EQ(InputBytes(decoded.tensors), 3 * 64);
  alignas(64) std::array<std::byte, 3 * 64> memory{};
  const auto [tensors, batch, versions] = PlaceInputs(memory.data(), decoded);
  ASSERT_EQ(tensors.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(tensors[i].data, memory.data() + 64 * i);
    EXPECT_EQ(tensors[i].bytes, i < 2 ? 16 : 4);
    EXPECT_EQ(tensors[i].is_mask, i == 2);
  }
  EXPECT_EQ(batch.tensor(kernels::InputRole::kRollout).data, tensors[0].data);
  EXPECT_EQ(batch.tensor(kernels::InputRole::kOld).data, tensors[1].data);
  EXPECT_EQ(static_cast<const void*>(batch.response_mask), tensors[2].data);
  EXPECT_FALSE(versions.came);
}

TEST(Codec, MasksHoldOnlyZeroAndOne) {
  v1::CorrectRequest request = ValidRequest();
  (*request.mutable_tensors(2)->mutable_data())[3] = '\2';
  EXPECT_THAT(Fields(request), ElementsAre("tensors[2].data"));
}

TEST(Codec, TensorsComeOnceInTheirDtype) {
  v1::CorrectRequest request = ValidRequest();
  *request.add_tensors() = request.tensors(0);
  request.mutable_tensors(2)->set_dtype(v1::D_TYPE_F32);
  EXPECT_THAT(Fields(request),
              ElementsAre("tensors[2].dtype", "tensors[3].role"));
}

TEST(Codec, LayoutsAreBounded) {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  v1::CorrectRequest request = ValidRequest();
  request.mutable_layout()->mutable_padded()->set_length(huge);
  EXPECT_THAT(Fields(request), Contains("layout.padded.length"));
  request.mutable_layout()->mutable_padded()->set_num_sequences(-1);
  EXPECT_THAT(Fields(request), Contains("layout.padded.num_sequences"));
  v1::PackedLayout* packed = request.mutable_layout()->mutable_packed();
  packed->add_sequence_lengths(huge);
  packed->add_sequence_lengths(huge);
  EXPECT_THAT(Fields(request), Contains("layout.packed.sequence_lengths[0]"));
  packed->clear_sequence_lengths();
  packed->add_sequence_lengths(4);
  packed->set_padded_length(3);
  EXPECT_THAT(Fields(request), ElementsAre("layout.packed.padded_length"));
}

TEST(Codec, WhatIsNotHonouredYetIsRefusedByName) {
  v1::CorrectRequest request = ValidRequest();
  request.mutable_global_counts()->set_num_tokens(4);
  request.add_group_ids(1);
  request.add_group_ids(1);
  request.add_trajectory_ids(1);
  request.add_outputs(v1::TENSOR_ROLE_GRADIENT);
  request.mutable_tensors(0)->clear_data();
  request.mutable_tensors(0)->mutable_shared_memory();
  Add(v1::TENSOR_ROLE_ENTROPIES, v1::D_TYPE_F32, Bytes({0, 0, 0, 0}), &request);
  EXPECT_THAT(Fields(request),
              UnorderedElementsAre("global_counts", "group_ids",
                                   "trajectory_ids", "tensors[0].shared_memory",
                                   "tensors[3].role", "outputs[0]"));
}

TEST(Codec, OutputsAreOutputsAskedForOnce) {
  v1::CorrectRequest request = ValidRequest();
  request.mutable_method()->mutable_preset()->set_name("geo_rs");
  request.add_outputs(v1::TENSOR_ROLE_WEIGHTS);
  request.add_outputs(v1::TENSOR_ROLE_KEEP_MASK);
  request.add_outputs(v1::TENSOR_ROLE_KEEP_MASK);
  request.add_outputs(v1::TENSOR_ROLE_OLD_LOG_PROBS);
  EXPECT_THAT(Fields(request),
              ElementsAre("outputs[0]", "outputs[2]", "outputs[3]"));
}

TEST(Codec, PresetsAndTheirParametersAreChecked) {
  v1::CorrectRequest request = ValidRequest();
  v1::Preset* preset = request.mutable_method()->mutable_preset();
  (*preset->mutable_parameters())["uper"] = 3.0;
  EXPECT_THAT(Fields(request), ElementsAre("method.preset.parameters[uper]"));
  preset->clear_parameters();
  (*preset->mutable_parameters())["upper"] = -1.0;
  EXPECT_THAT(Fields(request), Contains("method.preset.parameters"));
  preset->set_name("token_tys");
  EXPECT_THAT(Fields(request), ElementsAre("method.preset.name"));
}

// Returns the only violation's description.
std::string Description(const v1::CorrectRequest& request) {
  const Violations violations = Decode(request, {}, {}).violations;
  EXPECT_EQ(violations.size(), 1u);
  return violations.empty() ? "" : violations.front().description;
}

TEST(Codec, UnknownNamesOfMethodsAreToldTheNearest) {
  v1::CorrectRequest request = ValidRequest();
  v1::Preset* preset = request.mutable_method()->mutable_preset();
  preset->set_name("token_tsi");
  EXPECT_EQ(Description(request),
            "No preset is called 'token_tsi'. Did you mean 'token_tis'? "
            "ListMethods tells the names.");
  preset->set_name("perfect");
  EXPECT_EQ(Description(request),
            "No preset is called 'perfect'. ListMethods tells the names.");
  preset->set_name("token_tis");
  (*preset->mutable_parameters())["uper"] = 3.0;
  EXPECT_EQ(Description(request),
            "token_tis has no such parameter. Did you mean 'upper'? It takes "
            "upper.");
  preset->set_name("none");
  EXPECT_EQ(Description(request), "none has no such parameter. It takes none.");
  v1::Dialect* dialect = request.mutable_method()->mutable_dialect();
  dialect->set_system("vrel");
  EXPECT_EQ(Description(request),
            "'vrel' is not a dialect of this server. Did you mean 'verl'? It "
            "speaks verl, trl, skyrl, openrlhf, slime, miles, nemo_rl, "
            "ms_swift, prime_rl, areal, roll, tinker.");
}

TEST(Codec, LongNamesOfMethodsAreCutInMessages) {
  v1::CorrectRequest request = ValidRequest();
  const std::string giant(100000, 'x');
  const std::string shown = "'" + std::string(64, 'x') + "...'";
  request.mutable_method()->mutable_preset()->set_name(giant);
  EXPECT_EQ(Description(request),
            "No preset is called " + shown + ". ListMethods tells the names.");
  request.mutable_method()->mutable_dialect()->set_system(giant);
  EXPECT_EQ(Description(request), shown +
                                      " is not a dialect of this server. It "
                                      "speaks verl, trl, skyrl, openrlhf, "
                                      "slime, miles, nemo_rl, ms_swift, "
                                      "prime_rl, areal, roll, tinker.");
}

TEST(Codec, ManyUnknownParametersAreCounted) {
  v1::CorrectRequest request = ValidRequest();
  auto& parameters =
      *request.mutable_method()->mutable_preset()->mutable_parameters();
  for (int i = 0; i < 1000; ++i) parameters["upper" + std::to_string(i)] = 1.0;
  parameters["upper"] = 1.0;
  const Violations violations = Decode(request, {}, {}).violations;
  EXPECT_EQ(violations.size(), 1000u);
  EXPECT_EQ(violations.front().field, "method.preset.parameters[upper0]");
  EXPECT_THAT(violations.front().description, HasSubstr("mean 'upper'?"));
}

TEST(Codec, ATensorThatIsNotReadIsMentioned) {
  v1::CorrectRequest request = ValidRequest();
  Add(v1::TENSOR_ROLE_CURRENT_LOG_PROBS, v1::D_TYPE_F32, Bytes({0, 0, 0, 0}),
      &request);
  const Result<Decoded> decoded = Decode(request, {}, {});
  ASSERT_THAT(decoded.violations, IsEmpty());
  EXPECT_THAT(decoded.value.warnings,
              ElementsAre(HasSubstr("current_log_probs was sent")));
}

TEST(Codec, LabelsAreBoundedInLengthAndAlphabet) {
  v1::CorrectRequest request = ValidRequest();
  request.set_request_id(std::string(129, 'a'));
  request.mutable_labels()->set_run("a b");
  request.mutable_labels()->set_replica(std::string(65, 'a'));
  request.mutable_labels()->set_policy_version(-1);
  EXPECT_THAT(Fields(request),
              ElementsAre("request_id", "labels.run", "labels.replica",
                          "labels.policy_version"));
}

TEST(Codec, ANonFiniteNumberIsNamedWithItsPlace) {
  const Violation violation =
      ToViolation({kernels::InputRole::kOld, 3, 14, true});
  EXPECT_EQ(violation.field, "tensors[OLD_LOG_PROBS]");
  EXPECT_THAT(violation.description, HasSubstr("sequence 3, token 14"));
}

}  // namespace
}  // namespace counterweight::server
