// Batches in shared memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "kernels/corrector.h"
#include "tests/client_cpp/test_batch.h"
#include "tests/server/running_server.h"
#include "tests/server/temporary_folder.h"

namespace counterweight::client {
namespace {

class SharedMemory : public testing::Test {
 protected:
  SharedMemory() { Start(); }

  // A connection may share max_bytes.
  void Start(int64_t max_bytes = int64_t{16} << 20) {
    running_.reset();
    server::Config config = server::TestConfig();
    config.listen = {{.host = "", .port = 0, .path = folder_.File("cw.sock")}};
    config.shared_memory_socket = folder_.File("memory.sock");
    config.max_shared_memory_bytes = max_bytes;
    running_ = std::make_unique<server::RunningServer>(
        config, kernels::MakeCpuCorrector(2));
    target_ = "unix:" + folder_.File("cw.sock");
  }

  v1::CorrectResponse Want(const Request& request) {
    v1::CorrectResponse want;
    EXPECT_TRUE(running_->Correct(ToMessage(request), &want).ok());
    return want;
  }

  static Options Shared() {
    Options options;
    options.transport = Transport::kSharedMemory;
    return options;
  }

  void ExpectOk(Client* client, const Request& request, Response* response) {
    const Status status = client->Correct(request, response);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(response->transport, Transport::kSharedMemory);
    ExpectSame(*response, Want(request));
  }

  const server::TemporaryFolder folder_;
  std::unique_ptr<server::RunningServer> running_;
  std::string target_;
};

// The request with its inputs in shared memory.
Request Moved(const Request& request, Client* client, SharedBuffer* buffer) {
  size_t bytes = 0;
  for (const Input& input : request.inputs) bytes += input.bytes + 64;
  EXPECT_TRUE(client->Allocate(bytes, Access::kInput, buffer).ok());
  Request moved = request;
  std::byte* at = buffer->data();
  for (Input& input : moved.inputs) {
    std::memcpy(at, input.data, input.bytes);
    input.data = at;
    at += (input.bytes + 63) / 64 * 64;
  }
  return moved;
}

TEST_F(SharedMemory, AnswersTheSameWithCopies) {
  Client client(target_, Shared());
  Response response;
  const TestBatch large(70, 3001);
  const TestBatch small(2, 5);
  const TestBatch packed({5, 0, 4097, 1, 300});
  const TestBatch empty(0, 5);
  for (const TestBatch* batch : {&large, &small, &packed, &empty, &large}) {
    ExpectOk(&client, batch->Everything(), &response);
    ExpectOk(&client, batch->Weights(), &response);
  }
}

TEST_F(SharedMemory, AnswersTheSameInPlaceAsTheReadmeSays) {
  namespace cw = counterweight::client;
  Client client(target_, Shared());
  const TestBatch batch(70, 3001);
  const size_t positions = static_cast<size_t>(batch.num_positions());
#include "readme_shared_memory.inc"
  ASSERT_TRUE(status.ok()) << status.ToString();
  Request request = batch.Weights();
  std::byte* at = inputs.data();
  for (Input& input : request.inputs) {
    std::memcpy(at, input.data, input.bytes);
    input.data = at;
    at += input.bytes;
  }
  EXPECT_EQ(at, inputs.data() + positions * 9);
  request.outputs = {
      {v1::TENSOR_ROLE_WEIGHTS, outputs.data(), positions * 4},
      {v1::TENSOR_ROLE_KEEP_MASK, outputs.data() + positions * 4, positions}};
  Response response;
  ExpectOk(&client, request, &response);
  EXPECT_EQ(response.outputs[0].data, outputs.data());
  EXPECT_TRUE(std::any_of(outputs.data(), outputs.data() + positions * 4,
                          [](std::byte byte) { return byte != std::byte{0}; }));
}

TEST_F(SharedMemory, TensorsMayLieAcrossElementsOfTheirRegion) {
  // The caller's region, and the client's for the outputs.
  Start(int64_t{32} << 20);
  Client client(target_, Shared());
  const TestBatch batch(3, 100);
  SharedBuffer buffer;
  Request request = Moved(batch.Weights(), &client, &buffer);
  std::memmove(buffer.data() + 1, buffer.data(), request.inputs[0].bytes);
  request.inputs[0].data = buffer.data() + 1;
  // The mask moved by one byte too, to the end of the first tensor.
  request.inputs[1] = batch.Weights().inputs[1];
  Response response;
  ExpectOk(&client, request, &response);
}

TEST_F(SharedMemory, IsTakenForLargeBatches) {
  Options options;
  options.stream_from_bytes = 10000;
  Client client(target_, options);
  const TestBatch batch(70, 301);
  Response response;
  ASSERT_TRUE(client.Correct(batch.Everything(), &response).ok());
  EXPECT_EQ(response.transport, Transport::kSharedMemory);
  ExpectSame(response, Want(batch.Everything()));
  for (Request request : {batch.Weights(), batch.Everything()}) {
    request.outputs.clear();
    ASSERT_TRUE(client.Correct(request, &response).ok());
    EXPECT_EQ(response.transport, Transport::kSharedMemory);
    ExpectSame(response, Want(request));
  }
}

TEST_F(SharedMemory, WhatTheServerDoesNotTakeGoesByStream) {
  Options options;
  options.stream_from_bytes = 10000;
  Client client(target_, options);
  // Inputs of 17 MB where a connection may share 16 MiB.
  const TestBatch batch(1000, 1000);
  Response response;
  const Status status = client.Correct(batch.Everything(), &response);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(response.transport, Transport::kStream);

  const Status refused = client.Correct(
      batch.Everything(), &response, {.transport = Transport::kSharedMemory});
  EXPECT_EQ(refused.code, StatusCode::kResourceExhausted) << refused.ToString();
}

TEST_F(SharedMemory, KeptRegionsMakeRoomForOthers) {
  Client client(target_, Shared());
  const TestBatch batch(750, 1000);
  Request request = batch.Weights();
  request.outputs = {{.role = v1::TENSOR_ROLE_WEIGHTS},
                     {.role = v1::TENSOR_ROLE_KEEP_MASK}};
  // 7 MB of inputs and 4 MB of outputs leave 8 MiB and 4 MiB with the server,
  // of 16 MiB that a connection may share.
  Response first;
  ASSERT_TRUE(client.Correct(request, &first).ok());
  SharedBuffer buffer;
  const Request moved = Moved(request, &client, &buffer);
  Response second;
  const Status status = client.Correct(moved, &second);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(second.transport, Transport::kSharedMemory);
  EXPECT_TRUE(Bytes(second, v1::TENSOR_ROLE_WEIGHTS) ==
              Bytes(first, v1::TENSOR_ROLE_WEIGHTS));
}

TEST_F(SharedMemory, SurvivesTheServersRestart) {
  Client client(target_, Shared());
  const TestBatch batch(7, 301);
  SharedBuffer buffer;
  const Request request = Moved(batch.Everything(), &client, &buffer);
  Response response;
  ExpectOk(&client, request, &response);
  Start();
  ExpectOk(&client, request, &response);
}

TEST_F(SharedMemory, RegionsThatGoAreReleased) {
  // The client keeps one more region for the outputs.
  Start(int64_t{32} << 20);
  Client client(target_, Shared());
  const TestBatch batch(7, 301);
  Response response;
  // More than twice what the connection may share, were it not released.
  for (int i = 0; i < 10; ++i) {
    SharedBuffer buffer;
    ASSERT_TRUE(client.Allocate(size_t{8} << 20, Access::kInput, &buffer).ok());
    Request request = batch.Weights();
    std::memcpy(buffer.data(), request.inputs[0].data, request.inputs[0].bytes);
    request.inputs[0].data = buffer.data();
    const Status status = client.Correct(request, &response);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
}

TEST_F(SharedMemory, ManyThreadsShareAClient) {
  // Each thread keeps a region for inputs and one for outputs.
  Start(int64_t{64} << 20);
  Client client(target_, Shared());
  const TestBatch batch(16, 2000);
  const v1::CorrectResponse want = Want(batch.Everything());
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] {
      Response response;
      for (int i = 0; i < 5; ++i) {
        const Status status = client.Correct(batch.Everything(), &response);
        ASSERT_TRUE(status.ok()) << status.ToString();
        ExpectSame(response, want);
      }
    });
  }
}

}  // namespace
}  // namespace counterweight::client
