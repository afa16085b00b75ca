// Diagnose over the wire: what it reads, takes and gives back.
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/running_server.h"

namespace counterweight::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Change = std::function<void(v1::DiagnoseRequest*)>;

// SmallRequest() as a request of Diagnose: both have the same bytes.
v1::DiagnoseRequest Batch() {
  v1::DiagnoseRequest request;
  EXPECT_TRUE(request.ParseFromString(SmallRequest().SerializeAsString()));
  request.DiscardUnknownFields();
  return request;
}

class DiagnoseTest : public testing::Test {
 protected:
  explicit DiagnoseTest(const Config& config = TestConfig())
      : running_(config) {}

  grpc::Status Diagnose(const v1::DiagnoseRequest& request,
                        v1::DiagnoseResponse* response) {
    grpc::ClientContext context;
    return v1::CorrectionService::NewStub(running_.channel())
        ->Diagnose(&context, request, response);
  }

  std::vector<std::string> Warnings(const Change& change) {
    v1::DiagnoseRequest request = Batch();
    change(&request);
    v1::DiagnoseResponse response;
    const grpc::Status status = Diagnose(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return {response.warnings().begin(), response.warnings().end()};
  }

  RunningServer running_;
};

void AddVersions(v1::DiagnoseRequest* request) {
  request->mutable_labels()->set_policy_version(3);
  v1::VersionSpan* const span = request->add_version_spans();
  span->set_end(3);
  span->set_policy_version(2);
}

void AddGroups(v1::DiagnoseRequest* request) {
  request->add_group_ids(1);
  request->add_group_ids(1);
}

void Add(v1::TensorRole role, v1::DiagnoseRequest* request) {
  v1::Tensor* const tensor = request->add_tensors();
  *tensor = request->tensors(1);
  tensor->set_role(role);
}

// Whatever is not examined is mentioned, alone and beside what makes it read.
TEST_F(DiagnoseTest, WhatIsNotExaminedIsMentioned) {
  EXPECT_THAT(Warnings([](auto*) {}), IsEmpty());
  EXPECT_THAT(Warnings([](auto* request) {
                Add(v1::TENSOR_ROLE_REF_LOG_PROBS, request);
              }),
              ElementsAre(HasSubstr("ref_log_probs")));
  EXPECT_THAT(Warnings(AddGroups), ElementsAre(AllOf(HasSubstr("group_ids"),
                                                     HasSubstr("advantages"))));
  EXPECT_THAT(Warnings([](auto* request) {
                AddGroups(request);
                Add(v1::TENSOR_ROLE_ADVANTAGES, request);
              }),
              IsEmpty());
  EXPECT_THAT(Warnings([](auto* request) {
                request->mutable_labels()->set_policy_version(3);
              }),
              ElementsAre(HasSubstr("policy_version")));
  EXPECT_THAT(Warnings(AddVersions), IsEmpty());
  EXPECT_THAT(Warnings([](auto* request) {
                AddVersions(request);
                request->mutable_tensors(0)->set_role(
                    v1::TENSOR_ROLE_CURRENT_LOG_PROBS);
              }),
              ElementsAre(AllOf(HasSubstr("versions"), HasSubstr("rollout"))));
}

// The sample is a part of the budget while it is examined, and no longer.
TEST_F(DiagnoseTest, GivesItsMemoryBack) {
  for (int i = 0; i < 2; ++i) {
    v1::DiagnoseResponse response;
    EXPECT_TRUE(Diagnose(Batch(), &response).ok());
    EXPECT_TRUE(running_.server().WaitUntilIdle(std::chrono::minutes(1)));
    EXPECT_EQ(running_.server().bytes_in_flight(), 0);
  }
}

class SmallDiagnoseTest : public DiagnoseTest {
 protected:
  static Config Small() {
    Config config = TestConfig();
    config.max_bytes_in_flight = int64_t{16} << 20;
    return config;
  }
  SmallDiagnoseTest() : DiagnoseTest(Small()) {}
};

TEST_F(SmallDiagnoseTest, CountsAsWhatItTakes) {
  v1::DiagnoseResponse response;
  EXPECT_EQ(Diagnose(Batch(), &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(running_.Correct(SmallRequest()).ok()) << "which needs no sample";
  EXPECT_TRUE(running_.server().WaitUntilIdle(std::chrono::minutes(1)));
  EXPECT_EQ(running_.server().bytes_in_flight(), 0);
}

// Two at once find the same as one.
TEST_F(DiagnoseTest, TwoAtOnceFindTheSame) {
  v1::DiagnoseRequest request = Batch();
  request.set_request_id("one");
  const auto diagnose = [&] {
    v1::DiagnoseResponse response;
    EXPECT_TRUE(Diagnose(request, &response).ok());
    return response.DebugString();
  };
  const std::string expected = diagnose();
  auto first = std::async(std::launch::async, diagnose);
  auto second = std::async(std::launch::async, diagnose);
  EXPECT_EQ(first.get(), expected);
  EXPECT_EQ(second.get(), expected);
}

// No token, and no row.
TEST_F(DiagnoseTest, ABatchOfNothingIsNamed) {
  v1::DiagnoseRequest request = Batch();
  request.mutable_tensors(2)->set_data(std::string(6, '\0'));
  v1::DiagnoseResponse response;
  ASSERT_TRUE(Diagnose(request, &response).ok());
  ASSERT_EQ(response.findings_size(), 1);
  EXPECT_EQ(response.findings(0).name(), "no_tokens");
  request.mutable_layout()->mutable_padded()->set_num_sequences(0);
  for (v1::Tensor& tensor : *request.mutable_tensors()) tensor.clear_data();
  ASSERT_TRUE(Diagnose(request, &response).ok());
  ASSERT_EQ(response.findings_size(), 1);
  EXPECT_EQ(response.findings(0).name(), "no_tokens");
}

}  // namespace
}  // namespace counterweight::server
