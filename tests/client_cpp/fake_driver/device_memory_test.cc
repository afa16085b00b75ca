// Batches in device memory, which a server in another process opens. The fake
// runtime refuses the host's access to that memory, and runs streams late: a
// missing wait shows as wrong bytes.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "client/cpp/client.h"
#include "tests/client_cpp/fake_driver/device_batch.h"
#include "tests/client_cpp/process.h"
#include "tests/client_cpp/test_batch.h"
#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/server/temporary_folder.h"

namespace counterweight::client {
namespace {

constexpr char kDamage[] = "COUNTERWEIGHT_FAKE_DRIVER_HANDLES";

// The contract's message of an answer with outputs on the host.
v1::CorrectResponse ToMessage(const Response& response) {
  v1::CorrectResponse message = response.message;
  for (int i = 0; i < message.tensors_size(); ++i) {
    v1::Tensor* const tensor = message.mutable_tensors(i);
    tensor->set_data(Bytes(response, tensor->role()));
  }
  return message;
}

class DeviceMemory : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // This process has two devices, and the server the first one.
    setenv("COUNTERWEIGHT_FAKE_CUDA_DEVICES", "2", 1);
    int devices = 0;
    ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
    ASSERT_EQ(devices, 2);
    unsetenv("COUNTERWEIGHT_FAKE_CUDA_DEVICES");
  }

  DeviceMemory() : batch_(20, 201) { Start(); }
  ~DeviceMemory() override { unsetenv(kDamage); }

  void Start() {
    server_.emplace(std::vector<std::string>{
        COUNTERWEIGHT_SERVER_BINARY, "--listen=" + target_,
        "--shared_memory_socket=" + folder_.File("memory.sock"),
        "--metrics_listen=", "--backend=cuda"});
    ASSERT_FALSE(server_->ReadLine().empty());
  }

  Options In(Transport transport) {
    Options options;
    options.transport = transport;
    options.on_warning = [this](std::string_view warning) {
      warnings_.emplace_back(warning);
    };
    return options;
  }

  // The answer to a batch in the host's memory.
  v1::CorrectResponse Want(const Request& request) {
    Client client(target_, In(Transport::kUnary));
    Response response;
    const Status status = client.Correct(request, &response);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return ToMessage(response);
  }

  void ExpectOk(Client* client, DeviceBatch* batch,
                const v1::CorrectResponse& want, Transport transport) {
    Response response;
    const Status status = client->Correct(batch->request(), &response);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(response.message.backend(), "cuda");
    EXPECT_EQ(response.transport, transport);
    batch->Fetch(&response);
    ExpectSame(response, want);
  }

  // Number of allocations of the fake device that the server has open.
  int Opened() const {
    int opened = 0;
    const std::string folder =
        "/proc/" + std::to_string(server_->pid()) + "/fd";
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::error_code gone;
      const auto file = std::filesystem::read_symlink(entry.path(), gone);
      opened += file.string().find("fake_cuda") != std::string::npos ? 1 : 0;
    }
    return opened;
  }

  const server::TemporaryFolder folder_;
  const std::string target_ = "unix:" + folder_.File("cw.sock");
  std::optional<Process> server_;
  const TestBatch batch_;
  std::vector<std::string> warnings_;
};

TEST_F(DeviceMemory, HasTheHostsAnswers) {
  Client client(target_, In(Transport::kSharedMemory));
  const TestBatch packed({5, 0, 4097, 1, 300});
  for (const TestBatch* host : {&batch_, &packed}) {
    const v1::CorrectResponse want = Want(host->Everything());
    for (uint64_t seed = 1; seed < 8; ++seed) {
      fake_cuda::SetSeed(seed);
      DeviceBatch batch(host->Everything());
      ExpectOk(&client, &batch, want, Transport::kSharedMemory);
    }
  }
  EXPECT_TRUE(warnings_.empty());
}

// Only the allocation of the outputs is held; the request lacks it.
TEST_F(DeviceMemory, IsUsedAsTheReadmeSays) {
  namespace cw = counterweight::client;
  Client client(target_, In(Transport::kSharedMemory));
  const DeviceBatch batch(batch_.Everything());
  Request request = batch.request();
  request.inputs[0].location = Location::kHost;
  request.cuda_stream = nullptr;
  ASSERT_EQ(request.outputs[1].role, v1::TENSOR_ROLE_WEIGHTS);
  void* const device_weights = request.outputs[1].data;
  const size_t bytes = request.outputs[1].bytes;
  void* const stream = batch.stream();
#include "readme_device_memory.inc"
  ASSERT_TRUE(held.ok()) << held.ToString();
  Response response;
  const Status status = client.Correct(request, &response);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(Opened(), 1);
  EXPECT_EQ(response.outputs[0].data, device_weights);
  std::string weights(bytes, '\0');
  ASSERT_EQ(
      cudaMemcpy(weights.data(), device_weights, bytes, cudaMemcpyDeviceToHost),
      cudaSuccess);
  EXPECT_EQ(weights, Want(batch_.Everything()).tensors(1).data());
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(DeviceMemory, MayBeAPartOfABatch) {
  Client client(target_, In(Transport::kSharedMemory));
  const Request host = batch_.Everything();
  const v1::CorrectResponse want = Want(host);
  const DeviceBatch device(host);
  Request request = device.request();
  request.inputs[1] = host.inputs[1];
  request.outputs = host.outputs;
  Response response;
  const Status status = client.Correct(request, &response);
  ASSERT_TRUE(status.ok()) << status.ToString();
  ExpectSame(response, want);
}

TEST_F(DeviceMemory, IsReleasedAfterTheCall) {
  Client client(target_, In(Transport::kSharedMemory));
  DeviceBatch batch(batch_.Everything());
  const v1::CorrectResponse want = Want(batch_.Everything());
  for (int i = 0; i < 3; ++i) {
    ExpectOk(&client, &batch, want, Transport::kSharedMemory);
    EXPECT_EQ(Opened(), 0);
  }
}

TEST_F(DeviceMemory, StaysOpenWhileItIsHeld) {
  Client client(target_, In(Transport::kSharedMemory));
  DeviceBatch batch(batch_.Everything());
  const v1::CorrectResponse want = Want(batch_.Everything());
  DeviceHold inputs;
  DeviceHold outputs;
  ASSERT_TRUE(client.Hold(batch.inputs(), &inputs).ok());
  ASSERT_TRUE(client.Hold(batch.outputs(), &outputs).ok());
  EXPECT_EQ(Opened(), 0);
  for (int i = 0; i < 2; ++i) {
    ExpectOk(&client, &batch, want, Transport::kSharedMemory);
    EXPECT_EQ(Opened(), 2);
  }
  inputs = {};
  EXPECT_EQ(Opened(), 1);
  outputs = {};
  EXPECT_EQ(Opened(), 0);
}

TEST_F(DeviceMemory, IsRegisteredAnewWithARestartedServer) {
  Client client(target_, In(Transport::kSharedMemory));
  DeviceBatch batch(batch_.Everything());
  const v1::CorrectResponse want = Want(batch_.Everything());
  DeviceHold hold;
  ASSERT_TRUE(client.Hold(batch.inputs(), &hold).ok());
  ExpectOk(&client, &batch, want, Transport::kSharedMemory);
  server_.reset();
  Start();
  ExpectOk(&client, &batch, want, Transport::kSharedMemory);
  EXPECT_EQ(Opened(), 1);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(DeviceMemory, TravelsByTheHostOverOtherTransports) {
  const v1::CorrectResponse want = Want(batch_.Everything());
  for (const Transport transport : {Transport::kUnary, Transport::kStream}) {
    Client client(target_, In(transport));
    for (uint64_t seed = 1; seed < 4; ++seed) {
      fake_cuda::SetSeed(seed);
      DeviceBatch batch(batch_.Everything());
      ExpectOk(&client, &batch, want, transport);
    }
  }
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(DeviceMemory, WithoutAHandleIsCopiedWithOneWarning) {
  const v1::CorrectResponse want = Want(batch_.Everything());
  Client client(target_, In(Transport::kSharedMemory));
  DeviceBatch batch(batch_.Everything(), DeviceBatch::Memory::kPooled);
  DeviceHold hold;
  EXPECT_EQ(client.Hold(batch.inputs(), &hold).code,
            StatusCode::kFailedPrecondition);
  for (int i = 0; i < 2; ++i) {
    ExpectOk(&client, &batch, want, Transport::kSharedMemory);
  }
  EXPECT_EQ(warnings_,
            std::vector<std::string>{
                "counterweight: CUDA tensors are copied to the host: "
                "cuIpcGetMemHandle failed with CUresult 1"});
}

TEST_F(DeviceMemory, ThatTheServerRefusesIsCopiedWithOneWarning) {
  const v1::CorrectResponse want = Want(batch_.Everything());
  Options options = In(Transport::kAuto);
  options.stream_from_bytes = 10000;
  Client client(target_, options);
  DeviceBatch batch(batch_.Everything());
  setenv(kDamage, "damaged", 1);
  for (int i = 0; i < 2; ++i) {
    ExpectOk(&client, &batch, want, Transport::kSharedMemory);
  }
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_TRUE(warnings_[0].starts_with(
      "counterweight: CUDA tensors are copied to the host: the handle names "
      "no memory that can be opened"))
      << warnings_[0];
  EXPECT_EQ(Opened(), 0);
}

TEST_F(DeviceMemory, OfADeviceThatTheServerLacksIsCopied) {
  const v1::CorrectResponse want = Want(batch_.Everything());
  Client client(target_, In(Transport::kSharedMemory));
  DeviceBatch batch(batch_.Everything(), DeviceBatch::Memory::kExportable, 1);
  ExpectOk(&client, &batch, want, Transport::kSharedMemory);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_NE(warnings_[0].find("does not compute on the tensors' device"),
            std::string::npos);
}

TEST_F(DeviceMemory, IsCheckedBeforeAnythingIsSent) {
  Client client(target_, In(Transport::kAuto));
  const Request host = batch_.Everything();
  const DeviceBatch first(host);
  const DeviceBatch second(host, DeviceBatch::Memory::kExportable, 1);
  Request request = first.request();
  request.inputs[1].data = host.inputs[1].data;
  request.inputs[2] = second.request().inputs[2];
  Response response;
  Status status = client.Correct(request, &response);
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
  ASSERT_EQ(status.violations.size(), 2U) << status.ToString();
  EXPECT_EQ(status.violations[0].field, "inputs[1].data");
  EXPECT_EQ(status.violations[0].description,
            "is not memory of a CUDA device: cuPointerGetAttribute failed with "
            "CUresult 1");
  EXPECT_EQ(status.violations[1].field, "inputs[2].data");
  EXPECT_EQ(status.violations[1].description,
            "is on CUDA device 1, but inputs[0].data on device 0");
  request = first.request();
  request.outputs[0].data = nullptr;
  request.outputs[0].bytes = 0;
  status = client.Correct(request, &response);
  ASSERT_EQ(status.violations.size(), 1U) << status.ToString();
  EXPECT_EQ(status.violations[0].field, "outputs[0].data");
}

// A call that is given up returns when the server has closed its memory.
TEST_F(DeviceMemory, IsTheCallersAgainAfterADeadline) {
  const TestBatch large(128, 1024);
  DeviceBatch batch(large.Everything());
  Client client(target_, In(Transport::kSharedMemory));
  Response response;
  ASSERT_TRUE(
      client.Correct(DeviceBatch(batch_.Everything()).request(), &response)
          .ok());
  const Status status = client.Correct(
      batch.request(), &response, {.timeout = std::chrono::milliseconds(50)});
  ASSERT_EQ(status.code, StatusCode::kDeadlineExceeded) << status.ToString();
  EXPECT_EQ(status.message.find("device memory"), std::string::npos);
  EXPECT_EQ(Opened(), 0);
}

}  // namespace
}  // namespace counterweight::client
