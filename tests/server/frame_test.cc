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
  wire::Pieces pieces() const { return pieces_; }

 private:
  const std::string message_;
  std::vector<std::span<const uint8_t>> pieces_;
};

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
    EXPECT_EQ(frame.chunk.tensor, 300U);
    EXPECT_EQ(frame.chunk.offset, uint64_t{1} << 40);
    EXPECT_EQ(frame.chunk.data.Rest(), message.chunk().data());
  }
}

TEST(Frame, ReadsHeaders) {
  v1::CorrectStreamRequest message;
  message.mutable_header()->set_request_id("id");
  const Cut cut(message.SerializeAsString(), 3);
  Frame frame;
  ASSERT_EQ(ReadFrame(cut.pieces(), &frame), "");
  EXPECT_EQ(frame.kind, Frame::Kind::kHeader);
  EXPECT_EQ(frame.header.Rest(), message.header().SerializeAsString());
}

TEST(Frame, AbsentFieldsAreZero) {
  Frame frame;
  const Cut cut(std::string("\x12\x00", 2), 1);
  ASSERT_EQ(ReadFrame(cut.pieces(), &frame), "");
  EXPECT_EQ(frame.chunk.tensor, 0U);
  EXPECT_EQ(frame.chunk.offset, 0U);
  EXPECT_EQ(frame.chunk.data.left(), 0U);
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

}  // namespace
}  // namespace counterweight::server
