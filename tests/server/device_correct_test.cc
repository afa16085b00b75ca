// Correct with tensors in device memory, which the host cannot access: the same
// answer, and concurrent actions of clients.
#include <cstring>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/fake_devices.h"
#include "tests/server/running_server.h"
#include "tests/server/shared_memory/shared_memory_client.h"
#include "tests/server/shared_requests.h"
#include "tests/server/temporary_folder.h"

namespace counterweight::server {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kBytes = 4096;

class DeviceCorrect : public ::testing::Test {
 protected:
  DeviceCorrect()
      : devices_(new FakeDevices),
        running_(ConfigOf(), std::unique_ptr<kernels::Corrector>(devices_)),
        client_(folder_.File("shm.sock")),
        input_handle_(Register(&inputs_, RegionAccess::kRead)),
        output_handle_(Register(&outputs_, RegionAccess::kWrite)) {}

  Config ConfigOf() const {
    Config config = TestConfig();
    config.listen = {{.host = "", .port = 0, .path = folder_.File("cw.sock")},
                     {.host = "127.0.0.1", .port = 0, .path = ""}};
    config.shared_memory_socket = folder_.File("shm.sock");
    return config;
  }

  std::string Register(const FakeAllocation* memory, RegionAccess access) {
    devices_->Lend(*memory);
    return client_
        .Ask(DevicePacket(static_cast<uint64_t>(memory->size()), access,
                          memory->device(), memory->handle()))
        .handle;
  }

  v1::CorrectRequest Request() {
    return SharedRequest(input_handle_, inputs_.data(), output_handle_);
  }

  std::string Outputs() const {
    const auto* const data = reinterpret_cast<const char*>(outputs_.data());
    return std::string(data, 24) + std::string(data + 64, 6);
  }

  // Returns the same server's answer to the same bytes in the message.
  std::string Expected() {
    v1::CorrectResponse response;
    EXPECT_TRUE(running_.Correct(SmallRequest(), &response).ok());
    return response.tensors(0).data() + response.tensors(1).data();
  }

  // Returns the violations' fields; empty if the request is answered.
  std::vector<std::string> Fields(const v1::CorrectRequest& request) {
    return WrongFields(request, &running_);
  }

  std::vector<std::string> Features(const std::string& address) {
    const auto stub = v1::CorrectionService::NewStub(ConnectTo(address));
    grpc::ClientContext context;
    v1::GetServerInfoResponse info;
    EXPECT_TRUE(stub->GetServerInfo(&context, {}, &info).ok());
    EXPECT_EQ(info.devices(1).uuid(),
              std::string(kSecondDevice.begin(), kSecondDevice.end()));
    return {info.features().begin(), info.features().end()};
  }

  const TemporaryFolder folder_;
  const FakeAllocation inputs_{kFirstDevice, kBytes};
  const FakeAllocation outputs_{kFirstDevice, kBytes};
  // Not in its test: the server's threads, which read it, end later.
  const FakeAllocation other_{kSecondDevice, kBytes};
  FakeDevices* const devices_;  // the server's
  RunningServer running_;
  SharedMemoryClient client_;
  const std::string input_handle_;
  const std::string output_handle_;
};

TEST_F(DeviceCorrect, TheAnswerIsThatOfAMessage) {
  v1::CorrectResponse response;
  const grpc::Status status = running_.Correct(Request(), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(Outputs(), Expected());
  for (const v1::Tensor& tensor : response.tensors()) {
    EXPECT_THAT(tensor.data(), IsEmpty());
    EXPECT_EQ(tensor.shared_memory().handle(), output_handle_);
  }
}

TEST_F(DeviceCorrect, TensorsMayLieAnywhere) {
  const v1::CorrectRequest in_message = SmallRequest();
  const ClientMemory on_host(kBytes);
  const std::string host =
      client_.Register(on_host.memfd(), kBytes, RegionAccess::kRead).handle;
  const std::string expected = Expected();
  // Each of the three tensors in a message, in a memfd, or on the device.
  for (int where = 0; where < 27; ++where) {
    v1::CorrectRequest request = Request();
    for (int i = 0, rest = where; i < 3; ++i, rest /= 3) {
      const std::string& data = in_message.tensors(i).data();
      if (rest % 3 == 0) *request.mutable_tensors(i) = in_message.tensors(i);
      if (rest % 3 == 1) {
        std::memcpy(on_host.data() + 64 * i, data.data(), data.size());
        SetRange(host, 64 * i, data.size(), request.mutable_tensors(i));
      }
    }
    std::memset(outputs_.data(), 0, kBytes);
    EXPECT_THAT(Fields(request), IsEmpty()) << where;
    EXPECT_EQ(Outputs(), expected) << where;
  }
}

TEST_F(DeviceCorrect, StalenessIsMeasuredOfTensorsThatLieAnywhere) {
  const std::vector<int32_t> versions = {5, 4, 0, -1, 3, 2};
  const std::string bytes(reinterpret_cast<const char*>(versions.data()),
                          sizeof(int32_t) * versions.size());
  v1::CorrectRequest in_message = SmallRequest();
  in_message.mutable_labels()->set_policy_version(5);
  v1::Tensor* const tensor = in_message.add_tensors();
  tensor->set_role(v1::TENSOR_ROLE_POLICY_VERSIONS);
  tensor->set_dtype(v1::D_TYPE_I32);
  tensor->set_data(bytes);
  v1::CorrectResponse expected;
  ASSERT_TRUE(running_.Correct(in_message, &expected).ok());
  ASSERT_GT(expected.staleness().buckets(0).tokens(), 0);
  v1::CorrectRequest on_device = Request();
  *on_device.mutable_labels() = in_message.labels();
  *on_device.add_tensors() = *tensor;
  std::memcpy(inputs_.data() + 192, bytes.data(), bytes.size());
  for (const bool has_versions_there : {false, true}) {
    if (has_versions_there) {
      SetRange(input_handle_, 192, bytes.size(), on_device.mutable_tensors(3));
    }
    v1::CorrectResponse response;
    const grpc::Status status = running_.Correct(on_device, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.staleness().SerializeAsString(),
              expected.staleness().SerializeAsString());
  }
}

TEST_F(DeviceCorrect, RangesAreInsideTheRegionAndNotTheAllocation) {
  const std::string part =
      client_
          .Ask(DevicePacket(48, RegionAccess::kRead, kFirstDevice,
                            inputs_.handle()))
          .handle;
  v1::CorrectRequest request = Request();
  request.mutable_tensors(0)->mutable_shared_memory()->set_handle(part);
  EXPECT_THAT(Fields(request), IsEmpty());
  for (const uint64_t offset : {uint64_t{28}, uint64_t{4096}, UINT64_MAX - 3}) {
    request.mutable_tensors(0)->mutable_shared_memory()->set_offset(offset);
    EXPECT_THAT(Fields(request), ElementsAre("tensors[0].shared_memory.offset"))
        << offset;
  }
}

TEST_F(DeviceCorrect, MasksAreCheckedToo) {
  const v1::CorrectRequest request = Request();
  inputs_.data()[128 + 3] = 2;
  EXPECT_THAT(Fields(request), ElementsAre("tensors[2].data"));
}

// The device counts it and finds its first bad byte.
TEST_F(DeviceCorrect, MasksAreNotCopied) {
  devices_->BreakCopies();
  EXPECT_TRUE(running_.Correct(Request()).ok());
  EXPECT_EQ(Outputs(), Expected());
}

TEST_F(DeviceCorrect, OneRequestIsOnOneDevice) {
  const std::string reads = Register(&other_, RegionAccess::kRead);
  const std::string writes = Register(&other_, RegionAccess::kWrite);
  v1::CorrectRequest request = Request();
  request.mutable_tensors(1)->mutable_shared_memory()->set_handle(reads);
  request.mutable_destinations(0)->mutable_shared_memory()->set_handle(writes);
  EXPECT_THAT(Fields(request),
              ElementsAre("tensors[1].shared_memory.handle",
                          "destinations[0].shared_memory.handle"));
  request = Request();
  for (v1::Tensor& tensor : *request.mutable_tensors()) {
    std::memset(other_.data() + 128, 1, 6);
    tensor.mutable_shared_memory()->set_handle(reads);
  }
  for (v1::Tensor& tensor : *request.mutable_destinations()) {
    v1::SharedMemoryRange* const range = tensor.mutable_shared_memory();
    range->set_handle(writes);
    range->set_offset(range->offset() + kBytes / 2);
  }
  EXPECT_THAT(Fields(request), IsEmpty());
}

TEST_F(DeviceCorrect, OutputsAreNotWrittenOverInputs) {
  // The same memory, registered for both.
  const std::string writes = Register(&inputs_, RegionAccess::kWrite);
  v1::CorrectRequest request = Request();
  for (const uint64_t offset : {0, 20, 64, 84}) {
    SetRange(writes, offset, 24, request.mutable_destinations(0));
    EXPECT_THAT(Fields(request), ElementsAre("destinations[0].shared_memory"))
        << offset;
  }
  SetRange(writes, 24, 24, request.mutable_destinations(0));
  EXPECT_THAT(Fields(request), IsEmpty());
  // The keep mask on the last byte of the first tensor, and right after it.
  request = Request();
  SetRange(writes, 23, 6, request.mutable_destinations(1));
  EXPECT_THAT(Fields(request), ElementsAre("destinations[1].shared_memory"));
  SetRange(writes, 24, 6, request.mutable_destinations(1));
  EXPECT_THAT(Fields(request), IsEmpty());
}

TEST_F(DeviceCorrect, ABrokenDeviceIsNotTheClientsFault) {
  for (const bool is_lost : {false, true}) {
    devices_->Break(is_lost);
    const grpc::Status status = running_.Correct(Request());
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
    EXPECT_THAT(status.error_message(), Not(testing::HasSubstr("device")));
    EXPECT_EQ(running_.Health(""), is_lost ? 2 : 1);
  }
}

TEST_F(DeviceCorrect, MemoryOutlivesItsConnectionUntilTheAnswer) {
  std::promise<void> entered;
  std::promise<void> leave;
  devices_->PauseNext([&entered, left = leave.get_future().share()] {
    entered.set_value();
    left.wait();
  });
  const v1::CorrectRequest request = Request();
  auto answered =
      std::async([&] { return running_.Correct(request).error_code(); });
  entered.get_future().wait();
  EXPECT_TRUE(client_.Release(output_handle_).in_use);
  client_.Finish();
  EXPECT_EQ(devices_->open(), 2);
  leave.set_value();
  EXPECT_EQ(answered.get(), grpc::StatusCode::OK);
  EXPECT_EQ(Outputs(), Expected());
  EXPECT_TRUE(running_.server().WaitUntilIdle(std::chrono::minutes(1)));
}

TEST_F(DeviceCorrect, IsOfferedOnThisMachineOnly) {
  const auto& addresses = running_.server().addresses();
  EXPECT_THAT(Features(addresses.front()), Contains("cuda_ipc"));
  EXPECT_THAT(Features(addresses.front()), Contains("cuda_parts"));
  EXPECT_THAT(Features(addresses.back()), Not(Contains("cuda_ipc")));
  const auto stub = v1::CorrectionService::NewStub(ConnectTo(addresses.back()));
  grpc::ClientContext context;
  v1::CorrectResponse response;
  EXPECT_EQ(stub->Correct(&context, Request(), &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace counterweight::server
