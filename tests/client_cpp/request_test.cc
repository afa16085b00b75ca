// Refusals of the library before it sends anything.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "tests/client_cpp/test_batch.h"

namespace counterweight::client {
namespace {

// No server listens there, so a sent request fails with kUnavailable.
constexpr char kNowhere[] = "unix:/nonexistent/counterweight.sock";

Status Send(const Request& request, const Options& options = {}) {
  Client client(kNowhere, options);
  Response response;
  return client.Correct(request, &response);
}

std::vector<std::string> Fields(const Status& status) {
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument) << status.ToString();
  std::vector<std::string> fields;
  for (const FieldViolation& violation : status.violations) {
    fields.push_back(violation.field);
    EXPECT_NE(status.ToString().find(violation.field), std::string::npos);
  }
  return fields;
}

using Names = std::vector<std::string>;

TEST(Request, NamesEveryWrongTensorAtOnce) {
  const TestBatch batch(2, 5);
  Request request = batch.Everything();
  request.inputs[0].bytes -= 1;
  request.inputs[1].dtype = v1::D_TYPE_UNSPECIFIED;
  request.inputs[2].data = nullptr;
  request.outputs[0].bytes = 4;
  request.outputs[1].role = v1::TENSOR_ROLE_OLD_LOG_PROBS;
  request.outputs[4].role = v1::TENSOR_ROLE_KEEP_MASK;
  char small[3];
  request.outputs[3].data = small;
  request.outputs[3].bytes = sizeof(small);
  EXPECT_EQ(Fields(Send(request)),
            (Names{"inputs[0].bytes", "inputs[1].dtype", "inputs[2].data",
                   "outputs[0].bytes", "outputs[1].role", "outputs[3].bytes",
                   "outputs[4]"}));
}

TEST(Request, LeavesTensorsAndOutputsToTheLibrary) {
  const TestBatch batch(2, 5);
  Request request = batch.Weights();
  request.header.add_tensors();
  request.header.add_outputs(v1::TENSOR_ROLE_WEIGHTS);
  request.header.add_destinations();
  EXPECT_EQ(Fields(Send(request)),
            (Names{"header.tensors", "header.outputs", "header.destinations"}));
}

TEST(Request, RefusesLayoutsWithoutASize) {
  const TestBatch batch(2, 5);
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMost = int64_t{1} << 48;
  for (const auto& [rows, length] :
       std::vector<std::pair<int64_t, int64_t>>{{-1, 5},
                                                {2, -5},
                                                {kHuge, 2},
                                                // As int64_t the product is 0.
                                                {kMost >> 8, kMost >> 8},
                                                {kMost + 1, 1},
                                                {1, kMost + 1}}) {
    Request request = batch.Weights();
    SetPadded(rows, length, &request);
    EXPECT_EQ(Fields(Send(request)), Names{"header.layout"});
  }
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{3, -1}, std::vector<int64_t>{kHuge, kHuge},
        std::vector<int64_t>{kMost, 1}}) {
    Request request = batch.Weights();
    SetPacked(lengths, &request);
    EXPECT_EQ(Fields(Send(request)), Names{"header.layout"});
  }
  Request request = batch.Weights();
  request.header.clear_layout();
  EXPECT_EQ(Fields(Send(request)), Names{"header.layout"});
}

TEST(Request, TheLargestLayoutsAreJudgedByTheirTensors) {
  const TestBatch batch(2, 5);
  constexpr int64_t kMost = int64_t{1} << 48;
  const Names wrong_tensors = {"inputs[0].bytes", "inputs[1].bytes",
                               "inputs[2].bytes"};
  Request request = batch.Weights();
  SetPadded(kMost >> 8, int64_t{1} << 8, &request);
  EXPECT_EQ(Fields(Send(request)), wrong_tensors);
  SetPacked(std::vector<int64_t>{kMost - 1, 1, 0}, &request);
  EXPECT_EQ(Fields(Send(request)), wrong_tensors);
}

TEST(Request, WrongOptionsAreTheFirstCallsError) {
  const TestBatch batch(2, 5);
  Options options;
  options.timeout = std::chrono::milliseconds(0);
  options.max_attempts = 0;
  options.chunk_bytes = size_t{1} << 31;
  options.service = "";
  EXPECT_EQ(Fields(Send(batch.Weights(), options)),
            (Names{"options.timeout", "options.max_attempts",
                   "options.chunk_bytes", "options.service"}));
}

TEST(Request, AnErrorHasTheRequestId) {
  const TestBatch batch(2, 5);
  Options options;
  options.max_attempts = 1;
  Request request = batch.Weights();
  EXPECT_EQ(Send(request, options).request_id, "weights");
  request.header.clear_request_id();
  const Status first = Send(request, options);
  const Status second = Send(request, options);
  EXPECT_EQ(first.code, StatusCode::kUnavailable);
  EXPECT_EQ(first.request_id.size(), 32U);
  EXPECT_NE(first.request_id, second.request_id);
}

TEST(Transport, NamesAndTransportsAreOneToOne) {
  for (const Transport transport :
       {Transport::kAuto, Transport::kUnary, Transport::kStream,
        Transport::kSharedMemory}) {
    Transport parsed = Transport::kAuto;
    EXPECT_TRUE(ParseTransport(ToString(transport), &parsed));
    EXPECT_EQ(parsed, transport);
  }
  Transport parsed = Transport::kAuto;
  EXPECT_FALSE(ParseTransport("pigeon", &parsed));
}

}  // namespace
}  // namespace counterweight::client
