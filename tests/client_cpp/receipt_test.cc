// Receipts and reports of steps, by a real server.
#include "client/cpp/receipt.h"

#include <cstdint>
#include <vector>

#include "client/cpp/client.h"
#include "gtest/gtest.h"
#include "tests/server/running_server.h"

namespace counterweight::client {
namespace {

const std::vector<float> kWeights = {1.0F, 2.0F, 0.5F, 0.0F, 3.0F};
const std::vector<uint8_t> kMask = {1, 1, 1, 1, 0};

v1::Receipt Applied(const std::vector<float>& weights,
                    const std::vector<uint8_t>& mask,
                    const std::vector<int64_t>& lengths) {
  v1::Receipt receipt;
  EXPECT_TRUE(AddApplied(weights, mask, lengths, &receipt));
  return receipt;
}

TEST(Receipt, HasTheAnswerOfTheOtherClients) {
  const v1::Receipt receipt = Applied(kWeights, kMask, {5});
  EXPECT_EQ(receipt.fingerprint(), 0xb0ce7a2152b4026U);
  EXPECT_EQ(receipt.tokens(), 3);
  EXPECT_EQ(receipt.changed_tokens(), 2);
  EXPECT_EQ(receipt.weight_excess(), 0.5);
}

TEST(Receipt, PartsAddUp) {
  const v1::Receipt whole = Applied(kWeights, kMask, {2, 0, 3});
  v1::Receipt sum = Applied({0.5F, 0.0F, 3.0F}, {1, 1, 0}, {3});
  AddReceipt(Applied({1.0F, 2.0F}, {1, 1}, {2}), &sum);
  EXPECT_EQ(sum.SerializeAsString(), whole.SerializeAsString());
}

TEST(Receipt, LengthsThatDoNotFitAddNothing) {
  v1::Receipt receipt;
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{4}, {4, 2}, {-1, 6}, {}}) {
    EXPECT_FALSE(AddApplied(kWeights, kMask, lengths, &receipt));
  }
  const std::vector<int64_t> five = {5};
  EXPECT_FALSE(AddApplied(std::vector<float>{1.0F}, kMask, five, &receipt));
  EXPECT_EQ(receipt.ByteSizeLong(), 0U);
}

TEST(ReportStep, AnswersTheState) {
  server::RunningServer running(server::TestConfig());
  Client client(running.server().addresses().front());
  v1::ReportStepRequest request;
  request.set_request_id("id");
  request.mutable_labels()->set_run("cpp");
  request.mutable_labels()->set_step(1);
  *request.mutable_issued() = Applied(kWeights, kMask, {5});
  *request.mutable_applied() = Applied({}, kMask, {5});
  v1::ReportStepResponse response;
  ASSERT_TRUE(client.ReportStep(request, &response).ok());
  EXPECT_EQ(response.state(), v1::RECEIPT_STATE_UNUSED);
  EXPECT_EQ(response.warnings_size(), 1);
  request.clear_labels();
  const Status status = client.ReportStep(request, &response);
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
  EXPECT_EQ(status.violations.size(), 2U);
}

}  // namespace
}  // namespace counterweight::client
