#include "server/engine/frame.h"

#include <string>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

// A message in pieces of `size` bytes.
class Cut {
 public:
  Cut(std::string message, size_t size) : message_(std::move(message)) {
    const auto* data = reinterpret_cast<const uint8_t*>(message_.data());
    for (size_t at = 0; at < message_.size(); at += size) {
      pieces_.emplace_back(data + at, std::min(size, message_.size() - at));
      pieces_.emplace_back();  // empty ones are allowed
    }
  }
  Pieces pieces() const { return pieces_; }

 private:
  const std::string message_;
  std::vector<std::span<const uint8_t>> pieces_;
};

std::string Payload(const Cut& cut, const Frame& frame) {
  std::string payload(frame.payload.size, '\0');
  CopyRange(cut.pieces(), frame.payload, payload.data());
  return payload;
}

TEST(Frame, ReadsChunksWhereverTheyAreCut) {
  v1::CorrectStreamRequest message;
  message.mutable_chunk()->set_tensor(300);
  message.mutable_chunk()->set_offset(uint64_t{1} << 40);
  message.mutable_chunk()->set_data(std::string(1000, 'x') + "end");
  for (const size_t size : {1, 2, 3, 7, 100, 5000}) {
    const Cut cut(message.SerializeAsString(), size);
    Frame frame;
    ASSERT_EQ(ReadFrame(cut.pieces(), &frame), "");
    EXPECT_EQ(frame.kind, Frame::Kind::kChunk);
    EXPECT_EQ(frame.tensor, 300U);
    EXPECT_EQ(frame.offset, uint64_t{1} << 40);
    EXPECT_EQ(Payload(cut, frame), message.chunk().data());
  }
}

TEST(Frame, ReadsHeaders) {
  v1::CorrectStreamRequest message;
  message.mutable_header()->set_request_id("id");
  const Cut cut(message.SerializeAsString(), 3);
  Frame frame;
  ASSERT_EQ(ReadFrame(cut.pieces(), &frame), "");
  EXPECT_EQ(frame.kind, Frame::Kind::kHeader);
  EXPECT_EQ(Payload(cut, frame), message.header().SerializeAsString());
}

TEST(Frame, AbsentFieldsAreZero) {
  Frame frame;
  const Cut cut(std::string("\x12\x00", 2), 1);
  ASSERT_EQ(ReadFrame(cut.pieces(), &frame), "");
  EXPECT_EQ(frame.tensor, 0U);
  EXPECT_EQ(frame.offset, 0U);
  EXPECT_EQ(frame.payload.size, 0U);
}

TEST(Frame, RefusesWhatIsNotOneFrame) {
  const std::string chunk("\x12\x02\x08\x01", 4);
  const std::pair<std::string, std::string> cases[] = {
      {"", "exactly one"},
      {chunk + chunk, "exactly one"},
      {std::string("\x0a\x00", 2) + chunk, "exactly one"},
      {chunk.substr(0, 3), "do not parse"},
      {std::string("\x12\x05\x08\x01", 4), "do not parse"},
      {std::string("\x12\x02\x1a\x05", 4), "do not parse"},
      {std::string(11, '\xff'), "do not parse"},
      {std::string("\x13\x14", 2), "do not parse"},
  };
  for (const auto& [bytes, sentence] : cases) {
    Frame frame;
    const Cut cut(bytes, 1);
    EXPECT_NE(ReadFrame(cut.pieces(), &frame).find(sentence), std::string::npos)
        << testing::PrintToString(bytes);
  }
}

TEST(Frame, ChunkHeadIsAResponseWithoutItsData) {
  const std::string data(70000, 'y');
  v1::CorrectStreamResponse message;
  ASSERT_TRUE(message.ParseFromString(
      ChunkHead(2, uint64_t{5} << 32, data.size()) + data));
  EXPECT_EQ(message.chunk().tensor(), 2U);
  EXPECT_EQ(message.chunk().offset(), uint64_t{5} << 32);
  EXPECT_EQ(message.chunk().data(), data);
}

}  // namespace
}  // namespace counterweight::server
