// Device memory of another process: opened, read, written, and refused.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/kernels/cuda_on_cpu/placed_run.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

// ipc_client in a process of its own.
class Client {
 public:
  explicit Client(size_t bytes) {
    int input[2];
    int output[2];
    EXPECT_EQ(pipe(input), 0);
    EXPECT_EQ(pipe(output), 0);
    process_ = fork();
    if (process_ == 0) {
      dup2(input[0], STDIN_FILENO);
      dup2(output[1], STDOUT_FILENO);
      close(input[1]);
      close(output[0]);
      const std::string size = std::to_string(bytes);
      execl(COUNTERWEIGHT_IPC_CLIENT, "ipc_client", size.c_str(), nullptr);
      _exit(127);
    }
    close(input[0]);
    close(output[1]);
    input_ = input[1];
    output_ = fdopen(output[0], "r");
    char digits[130] = {};
    EXPECT_EQ(std::fscanf(output_, "%129s", digits), 1);
    for (size_t i = 0; i < handle_.size(); ++i) {
      const char pair[] = {digits[2 * i], digits[2 * i + 1], '\0'};
      handle_[i] = static_cast<uint8_t>(std::strtoul(pair, nullptr, 16));
    }
  }
  ~Client() {
    if (process_ > 0) End();
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const IpcHandle& handle() const { return handle_; }

  // Returns the sum of the client's memory.
  unsigned long long Sum() {
    unsigned long long sum = 0;
    EXPECT_EQ(write(input_, "\n", 1), 1);
    EXPECT_EQ(std::fscanf(output_, "%llu", &sum), 1);
    return sum;
  }

  void End() {
    close(input_);
    int status = 0;
    waitpid(process_, &status, 0);
    std::fclose(output_);
    process_ = 0;
  }

 private:
  pid_t process_ = 0;
  int input_ = -1;
  FILE* output_ = nullptr;
  IpcHandle handle_{};
};

class Ipc : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::ForgetErrors();
    fake_cuda::SetSeed(0);
    cuda_ = MakeFakeCuda(kSmallOptions);
    uuid_ = cuda_->Info().devices[0].uuid;
  }
  void TearDown() override { EXPECT_EQ(fake_cuda::Alive().ipc_mappings, 0); }

  void* Open(const IpcHandle& handle) {
    return cuda_->OpenDeviceMemory(handle, uuid_, &bytes_, &error_);
  }

  std::unique_ptr<Corrector> cuda_;
  DeviceUuid uuid_{};
  int64_t bytes_ = 0;
  std::string error_;
};

TEST_F(Ipc, ReadsWhatTheOtherProcessWrote) {
  Client client(10000);
  void* memory = Open(client.handle());
  ASSERT_NE(memory, nullptr) << error_;
  EXPECT_EQ(bytes_, 10000);
  std::vector<uint8_t> bytes(10000);
  ASSERT_TRUE(
      cuda_->CopyFromDevice(bytes.data(), memory, bytes.size(), &error_));
  for (size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], i % 251);
  // Opening twice gives the same memory, which stays until both are closed.
  EXPECT_EQ(Open(client.handle()), memory);
  cuda_->CloseDeviceMemory(memory);
  EXPECT_TRUE(cuda_->CopyFromDevice(bytes.data(), memory, 1, &error_));
  cuda_->CloseDeviceMemory(memory);
}

// A keep mask goes straight into the other process's memory.
TEST_F(Ipc, AnswersIntoTheOtherProcess) {
  constexpr size_t kTokens = 5000;
  Client client(kTokens);
  void* memory = Open(client.handle());
  ASSERT_NE(memory, nullptr) << error_;
  const OwnedBatch batch(
      std::vector<Row>(5, RowOf(std::vector<float>(1000, 0.0f))));
  Outputs outputs;
  outputs.keep_mask = static_cast<uint8_t*>(memory);
  for (uint64_t seed = 1; seed < 6; ++seed) {
    fake_cuda::SetSeed(seed);
    EXPECT_EQ(cuda_->Correct(WithRules({}), batch.view(), outputs).status,
              CorrectStatus::kOk);
  }
  EXPECT_EQ(client.Sum(), kTokens);
  cuda_->CloseDeviceMemory(memory);
}

// Mapped memory stays, as with memfds; unmapped memory can no longer be opened.
TEST_F(Ipc, OutlivesTheOtherProcess) {
  Client client(100);
  void* memory = Open(client.handle());
  ASSERT_NE(memory, nullptr) << error_;
  client.End();
  uint8_t byte = 0;
  EXPECT_TRUE(cuda_->CopyFromDevice(&byte, memory, 1, &error_));
  cuda_->CloseDeviceMemory(memory);
  EXPECT_EQ(Open(client.handle()), nullptr);
  EXPECT_EQ(error_,
            "the handle names no memory that can be opened: mapping of buffer "
            "object failed");
}

TEST_F(Ipc, RefusesWhatIsNoMemoryOfAnotherProcess) {
  EXPECT_EQ(Open(IpcHandle{}), nullptr);
  EXPECT_EQ(error_,
            "the handle names no memory that can be opened: invalid argument");
  uuid_[0] ^= 1;
  EXPECT_EQ(Open(IpcHandle{}), nullptr);
  EXPECT_EQ(error_, "the server does not compute on that device");
  uuid_[0] ^= 1;
  void* own = nullptr;
  cudaIpcMemHandle_t handle{};
  ASSERT_EQ(cudaMalloc(&own, 100), cudaSuccess);
  ASSERT_EQ(cudaIpcGetMemHandle(&handle, own), cudaSuccess);
  IpcHandle bytes{};
  std::memcpy(bytes.data(), &handle, sizeof(handle));
  EXPECT_EQ(Open(bytes), nullptr);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  cudaFree(own);
}

// A client that registers its memory under another device's UUID: kernels would
// read it over the bus, or fail.
TEST_F(Ipc, RefusesMemoryOfAnotherDevice) {
  Client client(100);  // of device 0
  const std::unique_ptr<Corrector> second = MakeFakeCuda(kSmallOptions, 1);
  EXPECT_EQ(
      second->OpenDeviceMemory(client.handle(), second->Info().devices[0].uuid,
                               &bytes_, &error_),
      nullptr);
  EXPECT_EQ(error_, "the memory lies on another device than its uuid says");
  EXPECT_EQ(fake_cuda::Alive().ipc_mappings, 0);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  void* memory = Open(client.handle());
  EXPECT_NE(memory, nullptr) << error_;
  cuda_->CloseDeviceMemory(memory);
}

// It works from any thread, whatever that thread's device is.
TEST_F(Ipc, ClosesMemoryOnItsDevice) {
  Client client(100);
  void* memory = Open(client.handle());
  ASSERT_NE(memory, nullptr) << error_;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  cuda_->CloseDeviceMemory(memory);
  EXPECT_EQ(fake_cuda::Alive().ipc_mappings, 0);
}

// Its size must be the driver's, whichever function knows it.
TEST_F(Ipc, OpensWhatTheFirstFunctionDoesNotKnow) {
  Client client(300);
  fake_cuda::SetOpenedRange(fake_cuda::OpenedRange::kUnknown);
  void* memory = Open(client.handle());
  fake_cuda::SetOpenedRange(fake_cuda::OpenedRange::kOwn);
  ASSERT_NE(memory, nullptr) << error_;
  EXPECT_EQ(bytes_, 300);
  cuda_->CloseDeviceMemory(memory);
}

// Its handle opens its neighbours' memory too.
TEST_F(Ipc, RefusesAPartOfABlock) {
  Client client(300);
  fake_cuda::SetOpenedRange(fake_cuda::OpenedRange::kOfBlock);
  EXPECT_EQ(Open(client.handle()), nullptr);
  fake_cuda::SetOpenedRange(fake_cuda::OpenedRange::kOwn);
  EXPECT_EQ(error_,
            "the memory is a part of a larger block, which its handle would "
            "open as a whole; allocations of 2 MiB and more have blocks of "
            "their own");
  EXPECT_EQ(fake_cuda::Alive().ipc_mappings, 0);
}

TEST_F(Ipc, ClosesWhatItCannotUse) {
  Client client(100);
  for (const char* api :
       {"cudaSetDevice", "cudaIpcOpenMemHandle", "cudaPointerGetAttributes",
        "cudaGetDriverEntryPointByVersion"}) {
    fake_cuda::FailCall(api, 1, cudaErrorUnknown);
    error_.clear();
    EXPECT_EQ(Open(client.handle()), nullptr) << api;
    EXPECT_NE(error_, "") << api;
    EXPECT_EQ(fake_cuda::Alive().ipc_mappings, 0) << api;
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << api;
  }
  void* memory = Open(client.handle());
  ASSERT_NE(memory, nullptr) << error_;
  fake_cuda::FailCall("cudaMemcpy", 1, cudaErrorUnknown);
  uint8_t byte = 0;
  EXPECT_FALSE(cuda_->CopyFromDevice(&byte, memory, 1, &error_));
  EXPECT_EQ(error_, "copying from device memory: unknown error");
  cuda_->CloseDeviceMemory(memory);
}

}  // namespace
}  // namespace counterweight::kernels
