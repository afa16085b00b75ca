// protobuf reads and writes the same bytes as the library's own code.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/cpp/transport/stream_frame.h"
#include "client/cpp/transport/tensor_fields.h"
#include "counterweight/v1/correction_service.pb.h"
#include "proto/wire/chunk.h"
#include "proto/wire/wire_reader.h"

namespace counterweight::client {
namespace {

// A message cut into pieces of `size` bytes, with an empty one after each.
class Cut {
 public:
  Cut(std::string message, size_t size) : message_(std::move(message)) {
    const auto* const data = reinterpret_cast<const uint8_t*>(message_.data());
    for (size_t i = 0; i < message_.size(); i += size) {
      pieces_.emplace_back(data + i, std::min(size, message_.size() - i));
      pieces_.emplace_back();
    }
  }
  wire::WireReader reader() const { return wire::WireReader(pieces_); }

 private:
  const std::string message_;
  std::vector<std::span<const uint8_t>> pieces_;
};

constexpr size_t kPieceSizes[] = {1, 2, 3, 7, 1000};

TEST(WireFormat, AChunkIsTheContractsChunk) {
  for (const uint64_t offset : {uint64_t{0}, uint64_t{127}, uint64_t{128},
                                uint64_t{1} << 40, UINT64_MAX}) {
    const std::string data(300, 'x');
    v1::CorrectStreamRequest request;
    ASSERT_TRUE(request.ParseFromString(
        wire::ChunkHead(v1::CorrectStreamRequest::kChunkFieldNumber, 4, offset,
                        data.size()) +
        data));
    EXPECT_EQ(request.chunk().tensor(), 4U);
    EXPECT_EQ(request.chunk().offset(), offset);
    EXPECT_EQ(request.chunk().data(), data);
    v1::CorrectStreamResponse response;
    ASSERT_TRUE(response.ParseFromString(
        wire::ChunkHead(v1::CorrectStreamResponse::kChunkFieldNumber, 4, offset,
                        data.size()) +
        data));
    EXPECT_EQ(response.chunk().data(), data);
  }
}

TEST(WireFormat, ATensorIsTheContractsTensor) {
  const std::string data(200, 'x');
  v1::CorrectRequest request;
  ASSERT_TRUE(request.ParseFromString(
      TensorHead(v1::CorrectRequest::kTensorsFieldNumber,
                 v1::TENSOR_ROLE_OLD_LOG_PROBS, v1::D_TYPE_BF16, data.size()) +
      data +
      TensorHead(v1::CorrectRequest::kTensorsFieldNumber,
                 v1::TENSOR_ROLE_RESPONSE_MASK, v1::D_TYPE_U8, 0)));
  ASSERT_EQ(request.tensors_size(), 2);
  EXPECT_EQ(request.tensors(0).role(), v1::TENSOR_ROLE_OLD_LOG_PROBS);
  EXPECT_EQ(request.tensors(0).dtype(), v1::D_TYPE_BF16);
  EXPECT_EQ(request.tensors(0).data(), data);
  EXPECT_EQ(request.tensors(1).role(), v1::TENSOR_ROLE_RESPONSE_MASK);
}

TEST(StreamFrame, ReadsWhatProtobufWrote) {
  v1::CorrectStreamResponse response;
  response.mutable_chunk()->set_tensor(300);
  response.mutable_chunk()->set_offset(uint64_t{1} << 60);
  response.mutable_chunk()->set_data("0123456789");
  for (const size_t size : kPieceSizes) {
    const Cut cut(response.SerializeAsString(), size);
    StreamFrame frame;
    ASSERT_TRUE(ReadStreamFrame(
        cut.reader(), v1::CorrectStreamResponse::kChunkFieldNumber, &frame));
    EXPECT_EQ(frame.field, v1::CorrectStreamResponse::kChunkFieldNumber);
    EXPECT_EQ(frame.chunk.tensor, 300U);
    EXPECT_EQ(frame.chunk.offset, uint64_t{1} << 60);
    EXPECT_EQ(frame.chunk.data.Rest(), "0123456789");
  }
}

TEST(StreamFrame, RefusesEveryTruncation) {
  v1::CorrectStreamResponse response;
  response.mutable_chunk()->set_tensor(300);
  response.mutable_chunk()->set_data("0123456789");
  const std::string whole = response.SerializeAsString();
  for (size_t size = 1; size < whole.size(); ++size) {
    const Cut cut(whole.substr(0, size), 3);
    StreamFrame frame;
    EXPECT_FALSE(ReadStreamFrame(
        cut.reader(), v1::CorrectStreamResponse::kChunkFieldNumber, &frame));
  }
}

TEST(TensorFields, LeavesTheMessageWithoutItsData) {
  v1::CorrectResponse response;
  response.set_request_id("id");
  (*response.mutable_metrics())["kl"] = 0.5;
  for (const char* data : {"weights", "", "mask"}) {
    v1::Tensor* const tensor = response.add_tensors();
    tensor->set_role(v1::TENSOR_ROLE_WEIGHTS);
    tensor->set_dtype(v1::D_TYPE_F32);
    tensor->set_data(data);
  }
  response.set_backend("cpu");
  for (const size_t size : kPieceSizes) {
    const Cut cut(response.SerializeAsString(), size);
    std::string rest;
    std::vector<wire::WireReader> data;
    ASSERT_TRUE(TakeTensorData(
        cut.reader(), v1::CorrectResponse::kTensorsFieldNumber, &rest, &data));
    ASSERT_EQ(data.size(), 3U);
    EXPECT_EQ(data[0].Rest(), "weights");
    EXPECT_EQ(data[1].Rest(), "");
    EXPECT_EQ(data[2].Rest(), "mask");
    v1::CorrectResponse want = response;
    for (v1::Tensor& tensor : *want.mutable_tensors()) tensor.clear_data();
    v1::CorrectResponse have;
    ASSERT_TRUE(have.ParseFromString(rest));
    EXPECT_EQ(have.SerializeAsString(), want.SerializeAsString());
  }
}

}  // namespace
}  // namespace counterweight::client
