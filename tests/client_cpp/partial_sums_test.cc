// Sums of the parts of a step: those of one request with all rows, and so is
// what is made of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <future>
#include <limits>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "client/cpp/method.h"
#include "kernels/corrector.h"
#include "tests/client_cpp/fake_service.h"
#include "tests/client_cpp/test_batch.h"
#include "tests/server/running_server.h"

namespace counterweight::client {
namespace {

constexpr int64_t kRows = 23;
constexpr int64_t kLength = 61;
// The number of parts, the only sum that depends on the partition.
constexpr int kParts = 1;

// Rows [begin, end) of a padded request.
Request Rows(const Request& whole, int64_t begin, int64_t end) {
  Request part = whole;
  SetPadded(end - begin, kLength, &part);
  for (Input& input : part.inputs) {
    const size_t row = input.bytes / kRows;
    input.data = static_cast<const std::byte*>(input.data) +
                 static_cast<size_t>(begin) * row;
    input.bytes = static_cast<size_t>(end - begin) * row;
  }
  return part;
}

// Three parts in another order than their rows', the second one empty.
std::vector<Request> Parts(const Request& whole) {
  return {Rows(whole, 9, kRows), Rows(whole, 9, 9), Rows(whole, 0, 9)};
}

std::string Bytes(v1::PartialSums sums) {
  sums.set_sums(kParts, 0.0);
  return sums.SerializeAsString();
}

// Fails unless loss, metrics and rules are the same to the bit.
void ExpectSameNumbers(const v1::CorrectResponse& have,
                       const v1::CorrectResponse& want) {
  Response without_tensors;
  without_tensors.message = have;
  v1::CorrectResponse numbers = want;
  numbers.clear_tensors();
  ExpectSame(without_tensors, numbers);
  EXPECT_EQ(have.staleness().SerializeAsString(),
            want.staleness().SerializeAsString());
}

class PartialSums : public testing::Test {
 protected:
  PartialSums()
      : running_(server::TestConfig(), kernels::MakeCpuCorrector(2)),
        client_(running_.server().addresses().front()),
        batch_(kRows, kLength) {}

  static Request Summed(Request request) {
    request.header.set_partial_sums(true);
    return request;
  }

  v1::CorrectResponse Correct(const Request& request,
                              Transport transport = Transport::kUnary) {
    Response response;
    const Status status =
        client_.Correct(request, &response, {.transport = transport});
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_GT(response.message.sums().sums_size(), kParts);
    return response.message;
  }

  v1::MergeSumsResponse Merge(const v1::MergeSumsRequest& request) {
    v1::MergeSumsResponse response;
    const Status status = client_.MergeSums(request, &response);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return response;
  }

  // The one violation of a merge that is refused.
  FieldViolation Refusal(const v1::MergeSumsRequest& request) {
    v1::MergeSumsResponse response;
    const Status status = client_.MergeSums(request, &response);
    EXPECT_EQ(status.code, StatusCode::kInvalidArgument) << status.ToString();
    EXPECT_EQ(status.violations.size(), 1U);
    return status.violations.empty() ? FieldViolation() : status.violations[0];
  }

  server::RunningServer running_;
  Client client_;
  const TestBatch batch_;
};

TEST_F(PartialSums, OfAnyPartsHaveTheBytesOfOneRequest) {
  for (const bool has_loss : {false, true}) {
    Request request = Summed(has_loss ? batch_.Everything() : batch_.Weights());
    if (has_loss) {
      request.header.set_omit_loss(true);
      request.outputs = {{.role = v1::TENSOR_ROLE_WEIGHTS}};
    }
    for (const Transport transport : {Transport::kUnary, Transport::kStream}) {
      const v1::CorrectResponse whole = Correct(request, transport);
      EXPECT_FALSE(whole.has_loss());
      v1::MergeSumsRequest merge;
      *merge.mutable_method() = request.header.method();
      for (const Request& part : Parts(request)) {
        *merge.add_parts() = Correct(part, transport).sums();
      }
      const v1::MergeSumsResponse forward = Merge(merge);
      EXPECT_EQ(Bytes(forward.sums()), Bytes(whole.sums()));
      ExpectSameNumbers(forward.answer(), whole);
      std::reverse(merge.mutable_parts()->begin(),
                   merge.mutable_parts()->end());
      EXPECT_EQ(Merge(merge).sums().SerializeAsString(),
                forward.sums().SerializeAsString());
      // And of sums that were merged before.
      v1::MergeSumsRequest last;
      *last.add_parts() = merge.parts(2);
      merge.mutable_parts()->RemoveLast();
      *last.add_parts() = Merge(merge).sums();
      EXPECT_EQ(Bytes(Merge(last).sums()), Bytes(whole.sums()));
      EXPECT_FALSE(Merge(last).has_answer());
    }
  }
}

TEST_F(PartialSums, AnAllReduceMergesThem) {
  const Request request = Summed(batch_.Weights());
  const v1::CorrectResponse whole = Correct(request);
  v1::PartialSums added;
  for (const Request& part : Parts(request)) {
    const v1::PartialSums sums = Correct(part).sums();
    if (added.sums().empty()) {
      added = sums;
      continue;
    }
    for (int i = 0; i < sums.sums_size(); ++i) {
      added.set_sums(i, added.sums(i) + sums.sums(i));
    }
    for (int i = 0; i < sums.maxima_size(); ++i) {
      added.set_maxima(i, std::max(added.maxima(i), sums.maxima(i)));
    }
  }
  v1::MergeSumsRequest merge;
  *merge.mutable_method() = request.header.method();
  *merge.add_parts() = added;
  const v1::MergeSumsResponse merged = Merge(merge);
  EXPECT_EQ(Bytes(merged.sums()), Bytes(whole.sums()));
  ExpectSameNumbers(merged.answer(), whole);
}

// The first pass counts the step, the second one divides by its counts.
TEST_F(PartialSums, LossesAddUpWithTheCountsOfTheStep) {
  Request first = Summed(batch_.Everything());
  first.header.set_omit_loss(true);
  first.outputs.clear();
  v1::MergeSumsRequest merge;
  *merge.mutable_method() = first.header.method();
  for (const Request& part : Parts(first)) {
    *merge.add_parts() = Correct(part).sums();
  }
  const v1::MergeSumsResponse totals = Merge(merge);
  EXPECT_EQ(totals.counts_refusal(), "");
  EXPECT_EQ(static_cast<double>(totals.counts().num_tokens()),
            totals.answer().metrics().at("tokens"));
  Request second = Summed(batch_.Everything());
  *second.header.mutable_global_counts() = totals.counts();
  const v1::CorrectResponse whole = Correct(second);
  merge.clear_parts();
  for (const Request& part : Parts(second)) {
    *merge.add_parts() = Correct(part).sums();
  }
  ExpectSameNumbers(Merge(merge).answer(), whole);
  EXPECT_TRUE(whole.has_loss());
}

TEST_F(PartialSums, BatchesInTheBackgroundHaveThem) {
  const Request request = Summed(batch_.Weights());
  const v1::CorrectResponse whole = Correct(request);
  std::vector<Response> responses(3);
  std::vector<std::future<Status>> calls;
  const std::vector<Request> parts = Parts(request);
  for (size_t i = 0; i < parts.size(); ++i) {
    calls.push_back(client_.Submit(parts[i], &responses[i]));
  }
  v1::MergeSumsRequest merge;
  for (size_t i = 0; i < parts.size(); ++i) {
    ASSERT_TRUE(calls[i].get().ok());
    *merge.add_parts() = responses[i].message.sums();
  }
  EXPECT_EQ(Bytes(Merge(merge).sums()), Bytes(whole.sums()));
}

TEST_F(PartialSums, WhatDoesNotAddUpIsRefusedByName) {
  const Request request = Summed(batch_.Weights());
  Request other = request;
  *other.header.mutable_method() = Preset("token_tis", {{"upper", 3.0}});
  v1::MergeSumsRequest merge;
  EXPECT_EQ(Refusal(merge).field, "parts");
  *merge.add_parts() = Correct(request).sums();
  *merge.add_parts() = Correct(other).sums();
  FieldViolation refusal = Refusal(merge);
  EXPECT_EQ(refusal.field, "parts");
  EXPECT_NE(refusal.description.find("are not of one method"),
            std::string::npos);
  *merge.mutable_parts(1) = Correct(Summed(batch_.Everything())).sums();
  EXPECT_EQ(Refusal(merge).field, "parts[1]");
  merge.mutable_parts()->RemoveLast();
  *merge.mutable_method() = Preset("seq_tis");
  EXPECT_EQ(Refusal(merge).field, "method");
  merge.mutable_parts(0)->set_sums(kParts, -1.0);
  EXPECT_EQ(Refusal(merge).field, "parts[0].sums");
  // Losses that were divided by the parts' own counts.
  const Request lossy = Summed(batch_.Everything());
  v1::MergeSumsRequest losses;
  *losses.mutable_method() = lossy.header.method();
  for (const Request& part : Parts(lossy)) {
    *losses.add_parts() = Correct(part).sums();
  }
  refusal = Refusal(losses);
  EXPECT_EQ(refusal.field, "parts");
  EXPECT_NE(refusal.description.find("global_counts or omit_loss"),
            std::string::npos);
}

// The answer of a fake server to a merge.
class MergeAnswer : public testing::Test {
 protected:
  MergeAnswer() {
    request_.add_parts()->add_sums(-0.5);
    request_.mutable_method()->mutable_preset()->set_name("token_tis");
    answer_.mutable_sums()->add_sums(std::numeric_limits<double>::infinity());
    answer_.mutable_sums()->add_maxima(
        std::bit_cast<double>(uint64_t{0x7ff8000000000001}));
    answer_.mutable_answer();
    service_.on_merge = [this](const v1::MergeSumsRequest& request,
                               v1::MergeSumsResponse* response) {
      EXPECT_EQ(request.SerializeAsString(), request_.SerializeAsString());
      *response = answer_;
      return refusals_-- > 0 ? grpc::Status(grpc::UNAVAILABLE, "it drains")
                             : grpc::Status::OK;
    };
  }

  int refusals_ = 0;
  v1::MergeSumsRequest request_;
  v1::MergeSumsResponse answer_;
  v1::MergeSumsResponse response_;
  FakeService service_;
};

TEST_F(MergeAnswer, IsReturnedAsItIsAfterARetry) {
  Client client(service_.target());
  refusals_ = 1;
  const Status status = client.MergeSums(request_, &response_);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(service_.calls(), 2);
  EXPECT_EQ(response_.SerializeAsString(), answer_.SerializeAsString());
}

TEST_F(MergeAnswer, WithoutWhatWasAskedForIsInternal) {
  Client client(service_.target());
  answer_.clear_answer();
  Status status = client.MergeSums(request_, &response_);
  EXPECT_EQ(status.code, StatusCode::kInternal);
  EXPECT_NE(status.message.find("no metrics"), std::string::npos);
  request_.clear_method();
  EXPECT_TRUE(client.MergeSums(request_, &response_).ok());
  answer_.clear_sums();
  status = client.MergeSums(request_, &response_);
  EXPECT_EQ(status.code, StatusCode::kInternal);
  EXPECT_NE(status.message.find("no sums"), std::string::npos);
  EXPECT_EQ(service_.calls(), 3);
}

TEST_F(MergeAnswer, OfAnOlderServerIsUnimplemented) {
  service_.on_merge = nullptr;
  Client client(service_.target());
  EXPECT_EQ(client.MergeSums(request_, &response_).code,
            StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace counterweight::client
