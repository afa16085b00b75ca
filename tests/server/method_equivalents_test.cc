// Compares each method with the blocks of other systems that the table calls
// equivalent, through the server's own path in one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/corrector.h"
#include "kernels/methods.h"
#include "server/engine/codec.h"
#include "server/engine/correction_run.h"
#include "server/engine/equivalents.h"
#include "tests/server/dialects/blocks.h"
#include "tests/testing/random_rows.h"

namespace counterweight::server {
namespace {

using kernels::InputRole;
using kernels::Method;
using kernels::Random;
using kernels::Row;
using ::testing::IsEmpty;

struct Batch {
  int64_t length;
  std::vector<Row> rows;
};

// Differences that the table lists do not show: every row has tokens and one
// advantage, and no log ratio or sum of them exceeds 20 nats.
std::vector<Batch> MildBatches() {
  Random random(1);
  std::vector<Batch> batches;
  for (const double spread : {1e-3, 0.02, 0.3}) {
    const std::vector<int64_t> lengths = {64, 20, 33, 64, 47, 12, 60, 31};
    batches.push_back(
        {64, RandomRows(random, lengths,
                        {.spread = spread, .highest = 0, .one_advantage = 1})});
  }
  return batches;
}

// Empty rows, advantages per token, log ratios far beyond 20 nats in both
// directions.
std::vector<Batch> HarshBatches() {
  Random random(2);
  std::vector<Batch> batches;
  for (const double spread : {1e-4, 0.5, 5.0}) {
    const std::vector<int64_t> lengths = {300, 0, 1, 77, 300, 2, 0, 150};
    batches.push_back({300, RandomRows(random, lengths, {.spread = spread})});
    // Log ratios of wide spreads are mostly negative.
    for (size_t i = 0; i < lengths.size(); i += 2) {
      Row& row = batches.back().rows[i];
      std::swap(row[InputRole::kRollout], row[InputRole::kCurrent]);
    }
    // One row on policy: verl refuses a batch without a weight above 0.
    Row& row = batches.back().rows[3];
    row[InputRole::kOld] = row[InputRole::kRollout];
    row[InputRole::kCurrent] = row[InputRole::kRollout];
  }
  return batches;
}

template <typename T>
void AddTensor(v1::TensorRole role, v1::DType dtype,
               const std::vector<T>& values, v1::CorrectRequest* request) {
  v1::Tensor& tensor = *request->add_tensors();
  tensor.set_role(role);
  tensor.set_dtype(dtype);
  tensor.set_data(values.data(), values.size() * sizeof(T));
}

v1::CorrectRequest RequestOf(const Batch& batch) {
  v1::CorrectRequest request;
  v1::PaddedLayout& layout = *request.mutable_layout()->mutable_padded();
  layout.set_num_sequences(static_cast<int64_t>(batch.rows.size()));
  layout.set_length(batch.length);
  const auto length = static_cast<size_t>(batch.length);
  const auto add = [&](v1::TensorRole role, InputRole input) {
    std::vector<float> padded(batch.rows.size() * length);
    for (size_t i = 0; i < batch.rows.size(); ++i) {
      std::copy(batch.rows[i][input].begin(), batch.rows[i][input].end(),
                padded.begin() + static_cast<ptrdiff_t>(i * length));
    }
    AddTensor(role, v1::D_TYPE_F32, padded, &request);
  };
  add(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, InputRole::kRollout);
  add(v1::TENSOR_ROLE_OLD_LOG_PROBS, InputRole::kOld);
  add(v1::TENSOR_ROLE_CURRENT_LOG_PROBS, InputRole::kCurrent);
  add(v1::TENSOR_ROLE_ADVANTAGES, InputRole::kAdvantages);
  std::vector<uint8_t> mask(batch.rows.size() * length);
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    std::copy(batch.rows[i].mask.begin(), batch.rows[i].mask.end(),
              mask.begin() + static_cast<ptrdiff_t>(i * length));
  }
  AddTensor(v1::TENSOR_ROLE_RESPONSE_MASK, v1::D_TYPE_U8, mask, &request);
  request.set_seed(7);
  return request;
}

// Returns no response, and test failures, if the request is refused.
v1::CorrectResponse Correct(const v1::CorrectRequest& request) {
  static kernels::Corrector& corrector =
      *kernels::MakeCpuCorrector(2).release();
  const auto [decoded, found] = Decode(request, RequestLimits(), {});
  v1::CorrectResponse response;
  Violations violations = found;
  if (violations.empty()) {
    const kernels::Outputs outputs = AllocateOutputs(
        decoded.outputs, decoded.layout, PlaceInMessage, &response);
    const kernels::CorrectResult result =
        BeginCorrection(&corrector, decoded, BatchOf(decoded),
                        VersionsOf(decoded), outputs, {})
            ->Finish();
    EXPECT_EQ(result.status, kernels::CorrectStatus::kOk);
    violations = Encode(decoded, result, &response);
  }
  for (const Violation& violation : violations) {
    ADD_FAILURE() << violation.field << ": " << violation.description;
  }
  return response;
}

void AskFor(const Method& method, v1::CorrectRequest* request) {
  std::vector<kernels::ParameterViolation> none;
  const kernels::CorrectionSpec spec = MakeSpec(method, {}, &none);
  request->add_outputs(v1::TENSOR_ROLE_KEEP_MASK);
  if (spec.weight.level != kernels::Level::kNone) {
    request->add_outputs(v1::TENSOR_ROLE_WEIGHTS);
  }
  if (spec.loss.surrogate != kernels::Surrogate::kNone) {
    request->add_outputs(v1::TENSOR_ROLE_GRADIENT);
  }
}

bool SameBytes(double a, double b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0 ||
         (std::isnan(a) && std::isnan(b));
}

void ExpectSame(const v1::CorrectResponse& ours,
                const v1::CorrectResponse& theirs) {
  ASSERT_EQ(ours.tensors_size(), theirs.tensors_size());
  for (int i = 0; i < ours.tensors_size(); ++i) {
    const std::string role = v1::TensorRole_Name(ours.tensors(i).role());
    EXPECT_TRUE(ours.tensors(i).data() == theirs.tensors(i).data()) << role;
  }
  EXPECT_EQ(ours.has_loss(), theirs.has_loss());
  EXPECT_TRUE(SameBytes(ours.loss(), theirs.loss()))
      << ours.loss() << " and " << theirs.loss();
}

bool Near(double a, double b) {
  constexpr double kRelative = 1e-6;
  return std::abs(a - b) <= kRelative * std::max(std::abs(a), std::abs(b));
}

void ExpectNear(const v1::CorrectResponse& ours,
                const v1::CorrectResponse& theirs) {
  ASSERT_EQ(ours.tensors_size(), theirs.tensors_size());
  for (int i = 0; i < ours.tensors_size(); ++i) {
    const v1::Tensor& a = ours.tensors(i);
    const v1::Tensor& b = theirs.tensors(i);
    ASSERT_EQ(a.data().size(), b.data().size());
    if (a.dtype() != v1::D_TYPE_F32) {
      EXPECT_EQ(a.data(), b.data());
      continue;
    }
    for (size_t at = 0; at < a.data().size(); at += sizeof(float)) {
      float x = 0;
      float y = 0;
      std::memcpy(&x, a.data().data() + at, sizeof(x));
      std::memcpy(&y, b.data().data() + at, sizeof(y));
      ASSERT_TRUE(Near(x, y)) << v1::TensorRole_Name(a.role()) << " at "
                              << at / sizeof(float) << ": " << x << ", " << y;
    }
  }
  EXPECT_TRUE(Near(ours.loss(), theirs.loss()));
}

// GSPO's gradient goes through the row's mean; verl's and SkyRL's goes through
// each token: a sum divided by n, and one of n equal addends.
bool RoundsDifferently(const Method& method, const Equivalent& equivalent) {
  return method.name == "gspo" &&
         (equivalent.system == "verl" || equivalent.system == "skyrl");
}

// Compares the method's answer with its equivalent's.
void Compare(const Method& method, const Equivalent& equivalent,
             const Batch& batch) {
  SCOPED_TRACE(std::string(method.name) + " as " +
               std::string(equivalent.system));
  v1::CorrectRequest request = RequestOf(batch);
  AskFor(method, &request);
  request.mutable_method()->mutable_preset()->set_name(
      std::string(method.name));
  const v1::CorrectResponse ours = Correct(request);
  v1::Dialect& dialect = *request.mutable_method()->mutable_dialect();
  dialect.set_system(std::string(equivalent.system));
  *dialect.mutable_block() = Block(std::string(equivalent.block));
  const v1::CorrectResponse theirs = Correct(request);
  if (RoundsDifferently(method, equivalent)) {
    ExpectNear(ours, theirs);
  } else {
    ExpectSame(ours, theirs);
  }
}

TEST(MethodEquivalents, AreOfMethodsOfTheTable) {
  for (const auto system :
       {VerlEquivalents, TrlEquivalents, SkyrlEquivalents, OpenrlhfEquivalents,
        SlimeEquivalents, MilesEquivalents, NemoRlEquivalents,
        MsSwiftEquivalents, ArealEquivalents, RollEquivalents}) {
    for (const Equivalent& row : system()) {
      EXPECT_NE(kernels::FindMethod(row.method), nullptr) << row.method;
    }
  }
}

TEST(MethodEquivalents, AreOnePerSystemAndTheOwnAmongThem) {
  for (const Method& method : kernels::Methods()) {
    SCOPED_TRACE(method.name);
    std::set<std::string_view> systems;
    for (const Equivalent& equivalent : EquivalentsOf(method.name)) {
      EXPECT_TRUE(systems.insert(equivalent.system).second)
          << equivalent.system;
      EXPECT_TRUE(equivalent.block.starts_with("{"));
    }
    // A fork defines it; no current release of its system can express it.
    if (method.name == "reinforce_pro") continue;
    // A method of our own has no other system.
    if (method.origin == "counterweight") continue;
    EXPECT_TRUE(systems.contains(method.origin));
  }
}

TEST(MethodEquivalents, AgreeOnMildBatches) {
  for (const Batch& batch : MildBatches()) {
    for (const Method& method : kernels::Methods()) {
      for (const Equivalent& equivalent : EquivalentsOf(method.name)) {
        Compare(method, equivalent, batch);
      }
    }
  }
}

TEST(MethodEquivalents, WithoutDifferenceAgreeOnHarshBatches) {
  for (const Batch& batch : HarshBatches()) {
    for (const Method& method : kernels::Methods()) {
      for (const Equivalent& equivalent : EquivalentsOf(method.name)) {
        if (!equivalent.differences.empty()) continue;
        Compare(method, equivalent, batch);
      }
    }
  }
}

TEST(MethodEquivalents, MildBatchesHaveNoEmptyRow) {
  for (const Batch& batch : MildBatches()) {
    for (const Row& row : batch.rows) {
      EXPECT_NE(std::count(row.mask.begin(), row.mask.end(), 1), 0);
    }
  }
}

// Ratios 1.5 and 1: the first is clipped at 1.2, the gradient of the second is
// -A / n.
TEST(MethodEquivalents, APresetWithALossAnswersLossAndGradient) {
  v1::CorrectRequest request;
  request.mutable_layout()->mutable_padded()->set_num_sequences(1);
  request.mutable_layout()->mutable_padded()->set_length(2);
  AddTensor<float>(v1::TENSOR_ROLE_OLD_LOG_PROBS, v1::D_TYPE_F32, {-1, -1},
                   &request);
  AddTensor<float>(v1::TENSOR_ROLE_CURRENT_LOG_PROBS, v1::D_TYPE_F32,
                   {-1 + std::log(1.5f), -1}, &request);
  AddTensor<float>(v1::TENSOR_ROLE_ADVANTAGES, v1::D_TYPE_F32, {1, 2},
                   &request);
  AddTensor<uint8_t>(v1::TENSOR_ROLE_RESPONSE_MASK, v1::D_TYPE_U8, {1, 1},
                     &request);
  request.mutable_method()->mutable_preset()->set_name("ppo_clip");
  const v1::CorrectResponse response = Correct(request);
  EXPECT_NEAR(response.loss(), -(1.2 + 2.0) / 2, 1e-7);
  EXPECT_THAT(response.warnings(), IsEmpty());
  ASSERT_EQ(response.tensors_size(), 2);
  EXPECT_EQ(response.tensors(0).role(), v1::TENSOR_ROLE_KEEP_MASK);
  EXPECT_EQ(response.tensors(1).role(), v1::TENSOR_ROLE_GRADIENT);
  const float gradient[] = {0.0f, -1.0f};
  EXPECT_EQ(
      response.tensors(1).data(),
      std::string(reinterpret_cast<const char*>(gradient), sizeof(gradient)));
}

v1::CorrectResponse CorrectByPreset(
    const std::string& name, const std::map<std::string, double>& parameters,
    uint64_t seed = 0) {
  v1::CorrectRequest request = RequestOf(HarshBatches()[1]);
  request.set_seed(seed);
  v1::Preset& preset = *request.mutable_method()->mutable_preset();
  preset.set_name(name);
  preset.mutable_parameters()->insert(parameters.begin(), parameters.end());
  return Correct(request);
}

TEST(MethodEquivalents, AnInfiniteDualClipIsNone) {
  ExpectSame(
      CorrectByPreset("ppo_clip",
                      {{"clip_high", 0.28},
                       {"dual_clip", std::numeric_limits<double>::infinity()}}),
      CorrectByPreset("dapo", {}));
}

TEST(MethodEquivalents, APresetTakesTheSeedOfTheRequest) {
  const std::map<std::string, double> parameters = {
      {"covariance_fraction", 0.05}, {"covariance_lower", -1}};
  const v1::CorrectResponse once = CorrectByPreset("clip_cov", parameters, 1);
  ExpectSame(once, CorrectByPreset("clip_cov", parameters, 1));
  EXPECT_NE(once.tensors(1).data(),
            CorrectByPreset("clip_cov", parameters, 2).tensors(1).data());
}

TEST(MethodEquivalents, ListMethodsTellsThoseWithoutDifference) {
  v1::ListMethodsResponse response;
  EncodeMethods(&response);
  ASSERT_EQ(static_cast<size_t>(response.methods_size()),
            kernels::Methods().size());
  for (int i = 0; i < response.methods_size(); ++i) {
    const v1::MethodInfo& info = response.methods(i);
    const Method& method = kernels::Methods()[static_cast<size_t>(i)];
    EXPECT_EQ(info.formula(), method.formula);
    EXPECT_EQ(info.when_to_use(), method.when_to_use);
    size_t exact = 0;
    for (const Equivalent& equivalent : EquivalentsOf(method.name)) {
      if (!equivalent.differences.empty()) continue;
      ++exact;
      EXPECT_EQ(info.equivalents().at(std::string(equivalent.system)),
                equivalent.block);
    }
    EXPECT_EQ(info.equivalents().size(), exact) << method.name;
  }
}

}  // namespace
}  // namespace counterweight::server
