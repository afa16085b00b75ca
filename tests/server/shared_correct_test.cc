// Correct with tensors in shared memory: valid and invalid ranges, and writes
// of clients during a request. conformance_test.cc checks answers.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/running_server.h"
#include "tests/server/shared_memory/shared_memory_client.h"
#include "tests/server/shared_requests.h"
#include "tests/server/temporary_folder.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr int64_t kSharedBytes = 4096;

class SharedCorrect : public ::testing::Test {
 protected:
  SharedCorrect()
      : running_(ConfigOf(), kernels::MakeCpuCorrector(2)),
        client_(folder_.File("shm.sock")),
        inputs_(kSharedBytes),
        outputs_(kSharedBytes),
        input_handle_(Register(inputs_, RegionAccess::kRead)),
        output_handle_(Register(outputs_, RegionAccess::kWrite)) {}

  Config ConfigOf() const {
    Config config = TestConfig();
    config.listen = {{.host = "", .port = 0, .path = folder_.File("cw.sock")},
                     {.host = "127.0.0.1", .port = 0, .path = ""}};
    config.shared_memory_socket = folder_.File("shm.sock");
    return config;
  }

  std::string Register(const ClientMemory& memory, RegionAccess access) {
    return client_
        .Register(memory.memfd(), static_cast<uint64_t>(memory.size()), access)
        .handle;
  }

  v1::CorrectRequest Request() {
    return SharedRequest(input_handle_, inputs_.data(), output_handle_);
  }

  // Returns the violations' fields; empty if the request is answered.
  std::vector<std::string> Fields(const v1::CorrectRequest& request) {
    return WrongFields(request, &running_);
  }

  const TemporaryFolder folder_;
  RunningServer running_;
  SharedMemoryClient client_;
  ClientMemory inputs_;
  ClientMemory outputs_;
  const std::string input_handle_;
  const std::string output_handle_;
};

TEST_F(SharedCorrect, RangesAreInsideTheirRegion) {
  EXPECT_THAT(Fields(Request()), IsEmpty());
  constexpr uint64_t kMax = UINT64_MAX;
  const std::pair<uint64_t, uint64_t> wrong[] = {{kSharedBytes, 24},
                                                 {kSharedBytes - 20, 24},
                                                 {kMax - 23, 24},
                                                 {kMax - 3, 24},
                                                 {uint64_t{1} << 63, 24}};
  for (const auto& [offset, length] : wrong) {
    v1::CorrectRequest request = Request();
    request.mutable_tensors(0)->mutable_shared_memory()->set_offset(offset);
    request.mutable_tensors(0)->mutable_shared_memory()->set_length(length);
    EXPECT_THAT(Fields(request), ElementsAre("tensors[0].shared_memory.offset"))
        << offset;
    request = Request();
    request.mutable_destinations(0)->mutable_shared_memory()->set_offset(
        offset);
    EXPECT_THAT(Fields(request),
                ElementsAre("destinations[0].shared_memory.offset"))
        << offset;
  }
  v1::CorrectRequest request = Request();
  request.mutable_tensors(0)->mutable_shared_memory()->set_offset(kSharedBytes -
                                                                  24);
  EXPECT_THAT(Fields(request), IsEmpty()) << "the last bytes are inside";
}

TEST_F(SharedCorrect, RangesFitTheirTensors) {
  v1::CorrectRequest request = Request();
  request.mutable_tensors(1)->mutable_shared_memory()->set_length(20);
  request.mutable_tensors(0)->mutable_shared_memory()->set_offset(2);
  request.mutable_destinations(0)->mutable_shared_memory()->set_length(
      UINT64_MAX);
  EXPECT_THAT(Fields(request),
              ElementsAre("tensors[0].shared_memory.offset",
                          "tensors[1].shared_memory.length",
                          "destinations[0].shared_memory.length",
                          "destinations[0].shared_memory.offset"));
}

TEST_F(SharedCorrect, RegionsAreForOneUse) {
  v1::CorrectRequest request = Request();
  request.mutable_tensors(0)->mutable_shared_memory()->set_handle(
      output_handle_);
  request.mutable_destinations(0)->mutable_shared_memory()->set_handle(
      input_handle_);
  EXPECT_THAT(Fields(request),
              ElementsAre("tensors[0].shared_memory.handle",
                          "destinations[0].shared_memory.handle"));
}

TEST_F(SharedCorrect, HandlesAreUnknownOnceReleasedOrNeverMade) {
  v1::CorrectRequest request = Request();
  for (const std::string& handle :
       {std::string(), std::string(16, '\0'), std::string(15, 'x'),
        std::string(1000, 'x')}) {
    request.mutable_tensors(0)->mutable_shared_memory()->set_handle(handle);
    EXPECT_THAT(Fields(request),
                ElementsAre("tensors[0].shared_memory.handle"));
  }
  request = Request();
  client_.Release(input_handle_);
  EXPECT_EQ(Fields(request).size(), 3U);
}

TEST_F(SharedCorrect, DestinationsAreOutputsAndDoNotOverlap) {
  v1::CorrectRequest request = Request();
  request.mutable_destinations(1)->mutable_shared_memory()->set_offset(23);
  EXPECT_THAT(Fields(request), ElementsAre("destinations[1].shared_memory"));
  request = Request();
  request.mutable_destinations(0)->set_dtype(v1::D_TYPE_BF16);
  request.mutable_destinations(1)->set_role(v1::TENSOR_ROLE_TOKEN_REASONS);
  EXPECT_THAT(Fields(request),
              ElementsAre("destinations[0].dtype", "destinations[1].role"));
  request = Request();
  *request.add_destinations() = request.destinations(0);
  EXPECT_THAT(Fields(request), ElementsAre("destinations[2].role"));
}

// Which outputs an answer has by default, only the server knows.
TEST_F(SharedCorrect, DestinationsOfOutputsThatTheMethodLacksAreIgnored) {
  v1::CorrectRequest request = Request();
  v1::Tensor* const gradient = request.add_destinations();
  gradient->set_role(v1::TENSOR_ROLE_GRADIENT);
  gradient->set_dtype(v1::D_TYPE_F32);
  SetRange(output_handle_, 128, 24, gradient);
  std::memset(outputs_.data() + 128, 0xa5, 24);
  v1::CorrectResponse response;
  ASSERT_TRUE(running_.Correct(request, &response).ok());
  EXPECT_EQ(response.tensors_size(), 2);
  for (const v1::Tensor& tensor : response.tensors()) {
    EXPECT_TRUE(tensor.has_shared_memory());
  }
  EXPECT_EQ(std::string(24, '\xa5'),
            std::string(outputs_.data() + 128, outputs_.data() + 152));
  // Their form is checked all the same.
  *request.add_destinations() = *gradient;
  EXPECT_THAT(Fields(request), ElementsAre("destinations[3].role"));
  request.mutable_destinations()->RemoveLast();
  v1::CorrectRequest wrong = request;
  wrong.mutable_destinations(2)->set_dtype(v1::D_TYPE_U8);
  EXPECT_THAT(Fields(wrong), ElementsAre("destinations[2].dtype"));
  wrong = request;
  wrong.mutable_destinations(2)->mutable_shared_memory()->set_handle("none");
  EXPECT_THAT(Fields(wrong),
              ElementsAre(StartsWith("destinations[2].shared_memory")));
  // Named outputs are what the caller expects.
  request.add_outputs(v1::TENSOR_ROLE_WEIGHTS);
  request.add_outputs(v1::TENSOR_ROLE_KEEP_MASK);
  EXPECT_THAT(Fields(request), ElementsAre("destinations[2].role"));
  request.clear_outputs();
  request.mutable_destinations(2)->set_role(v1::TENSOR_ROLE_OLD_LOG_PROBS);
  EXPECT_THAT(Fields(request), ElementsAre("destinations[2].role"));
}

TEST_F(SharedCorrect, IsForCallersOnThisMachine) {
  const auto stub = v1::CorrectionService::NewStub(
      ConnectTo(running_.server().addresses().back()));
  grpc::ClientContext context;
  v1::CorrectResponse response;
  const grpc::Status status = stub->Correct(&context, Request(), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  grpc::ClientContext info_context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(stub->GetServerInfo(&info_context, {}, &info).ok());
  EXPECT_THAT(info.shared_memory_socket(), IsEmpty());
}

TEST_F(SharedCorrect, MasksAreCheckedToo) {
  const v1::CorrectRequest request = Request();
  inputs_.data()[128 + 3] = 2;
  EXPECT_THAT(Fields(request), ElementsAre("tensors[2].data"));
}

// With any bytes at any time, the client gets numbers or violations, and other
// clients are served.
TEST_F(SharedCorrect, AClientThatScribblesHarmsItselfAlone) {
  const v1::CorrectRequest request = Request();
  std::atomic<bool> done = false;
  std::thread scribbler([&] {
    for (uint32_t x = 1; !done; x = x * 1664525 + 1013904223) {
      inputs_.data()[x >> 8 & 127] = static_cast<uint8_t>(x >> 24);
      inputs_.data()[128 + (x >> 3 & 7)] = static_cast<uint8_t>(x >> 30);
    }
  });
  for (int i = 0; i < 500; ++i) {
    const grpc::Status status = running_.Correct(request);
    EXPECT_TRUE(status.ok() ||
                status.error_code() == grpc::StatusCode::INVALID_ARGUMENT)
        << status.error_message();
  }
  done = true;
  scribbler.join();
  EXPECT_TRUE(running_.Correct(SmallRequest()).ok());
}

// Its requests may still run; its memory stays mapped until they are answered.
TEST_F(SharedCorrect, AConnectionsEndForgetsItsHandles) {
  const v1::CorrectRequest request = Request();
  client_.Finish();
  EXPECT_EQ(Fields(request).size(), 5U);
  EXPECT_EQ(running_.server().bytes_in_flight(), 0);
}

}  // namespace
}  // namespace counterweight::server
