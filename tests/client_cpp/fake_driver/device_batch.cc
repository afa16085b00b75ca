#include "tests/client_cpp/fake_driver/device_batch.h"

#include <gtest/gtest.h>

#include <cstring>

#include "client/cpp/transport/prepared_request.h"

namespace counterweight::client {
namespace {

// Tensors begin inside their allocation, as those of an allocator do.
constexpr size_t kGap = 256;

size_t Padded(size_t bytes) { return (bytes + 63) / 64 * 64 + kGap; }

}  // namespace

DeviceBatch::DeviceBatch(const Request& host, Memory memory, int device)
    : request_(host), memory_(memory), device_(device) {
  EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
            cudaSuccess);
  size_t bytes = kGap;
  for (const Input& input : host.inputs) bytes += Padded(input.bytes);
  inputs_ = Allocate(bytes);
  EXPECT_EQ(cudaHostAlloc(&staging_, bytes, 0), cudaSuccess);
  size_t offset = kGap;
  for (Input& input : request_.inputs) {
    auto* const from = static_cast<std::byte*>(staging_) + offset;
    auto* const to = static_cast<std::byte*>(inputs_) + offset;
    std::memcpy(from, input.data, input.bytes);
    EXPECT_EQ(
        cudaMemcpyAsync(to, from, input.bytes, cudaMemcpyHostToDevice, stream_),
        cudaSuccess);
    input.data = to;
    input.location = Location::kCuda;
    offset += Padded(input.bytes);
  }
  PreparedRequest layout;
  EXPECT_TRUE(ReadLayout(host.header.layout(), &layout));
  bytes = kGap;
  for (Output& output : request_.outputs) {
    output.bytes = OutputBytes(output.role, layout);
    bytes += Padded(output.bytes);
  }
  outputs_ = Allocate(bytes);
  offset = kGap;
  for (Output& output : request_.outputs) {
    output.data = static_cast<std::byte*>(outputs_) + offset;
    output.location = Location::kCuda;
    offset += Padded(output.bytes);
  }
  request_.cuda_stream = stream_;
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
}

DeviceBatch::~DeviceBatch() {
  EXPECT_EQ(cudaSetDevice(device_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  for (void* block : {inputs_, outputs_}) {
    EXPECT_EQ(memory_ == Memory::kExportable ? cudaFree(block)
                                             : cudaFreeAsync(block, stream_),
              cudaSuccess);
  }
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(staging_), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
}

void* DeviceBatch::Allocate(size_t bytes) {
  void* memory = nullptr;
  EXPECT_EQ(memory_ == Memory::kExportable
                ? cudaMalloc(&memory, bytes)
                : cudaMallocAsync(&memory, bytes, stream_),
            cudaSuccess);
  return memory;
}

void DeviceBatch::Fetch(Response* response) {
  ASSERT_EQ(response->outputs.size(), request_.outputs.size());
  for (size_t i = 0; i < request_.outputs.size(); ++i) {
    OutputTensor& output = response->outputs[i];
    EXPECT_EQ(output.data, request_.outputs[i].data);
    ASSERT_EQ(output.bytes, request_.outputs[i].bytes);
    std::vector<std::byte>& bytes = fetched_.emplace_back(output.bytes);
    ASSERT_EQ(cudaMemcpy(bytes.data(), output.data, output.bytes,
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    output.data = bytes.data();
  }
}

}  // namespace counterweight::client
