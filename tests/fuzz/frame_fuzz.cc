// The frame parser against protobuf's own.
//
// Input: a count, as many sizes of pieces (repeated over and over), a message.
//
// Checks: pieces cut anywhere are accepted or refused as protobuf's parser
// does, with the same fields and bytes.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "google/protobuf/empty.pb.h"
#include "google/protobuf/unknown_field_set.h"
#include "server/engine/frame.h"
#include "tests/fuzz/input.h"

namespace counterweight::fuzz {
namespace {

using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

// A message in pieces. Each has memory of its own, so that a sanitizer detects
// a read across an end.
class CutMessage {
 public:
  CutMessage(const std::string& bytes, const std::string& sizes) {
    size_t begin = 0;
    for (size_t i = 0; begin < bytes.size() && i < kMaxPieces; ++i) {
      const size_t size = sizes.empty()
                              ? bytes.size()
                              : static_cast<uint8_t>(sizes[i % sizes.size()]);
      begin += Add(bytes.substr(begin, size));
    }
    if (begin < bytes.size()) Add(bytes.substr(begin));
  }

  wire::Pieces pieces() const { return pieces_; }

 private:
  static constexpr size_t kMaxPieces = 4096;

  size_t Add(const std::string& bytes) {
    memory_.push_back(std::make_unique<uint8_t[]>(bytes.size()));
    std::copy(bytes.begin(), bytes.end(), memory_.back().get());
    pieces_.emplace_back(memory_.back().get(), bytes.size());
    return bytes.size();
  }

  std::vector<std::unique_ptr<uint8_t[]>> memory_;
  std::vector<std::span<const uint8_t>> pieces_;
};

bool HoldsGroup(const UnknownFieldSet& fields) {
  for (int i = 0; i < fields.field_count(); ++i) {
    if (fields.field(i).type() == UnknownField::TYPE_GROUP) return true;
  }
  return false;
}

// A message as protobuf reads it, field by field: Empty keeps unknown fields.
struct Fields {
  explicit Fields(const std::string& bytes)
      : parses(message.ParseFromString(bytes)),
        plain(parses && message.SerializeAsString() == bytes &&
              !HoldsGroup(set())) {}

  const UnknownFieldSet& set() const {
    return google::protobuf::Empty::GetReflection()->GetUnknownFields(message);
  }

  google::protobuf::Empty message;
  const bool parses;
  // Whether it is proto3 with every number in the fewest bytes.
  const bool plain;
};

// The expected result of ReadFrame.
struct Expected {
  bool accepted = false;
  // A refusal is an error: the message has neither numbers with leading zeros
  // nor groups, which proto3 lacks.
  bool plain = false;
  bool is_chunk = false;
  std::string header;
  v1::Chunk chunk;
};

Expected Parse(const std::string& bytes) {
  const Fields frame(bytes);
  Expected expected;
  expected.accepted = frame.parses;
  expected.plain = frame.plain;
  int frames = 0;
  for (int i = 0; i < frame.set().field_count(); ++i) {
    const UnknownField& field = frame.set().field(i);
    const bool is_chunk = field.number() == 2;
    if (field.type() != UnknownField::TYPE_LENGTH_DELIMITED ||
        (field.number() != 1 && !is_chunk)) {
      continue;
    }
    ++frames;
    expected.is_chunk = is_chunk;
    // Protobuf's own type is a string or a view of one.
    const std::string payload(field.length_delimited());
    if (!is_chunk) {
      expected.header = payload;
      continue;
    }
    if (!expected.chunk.ParseFromString(payload)) expected.accepted = false;
    expected.plain = expected.plain && Fields(payload).plain;
  }
  expected.accepted = expected.accepted && frames == 1;
  return expected;
}

void CheckFrame(const std::string& bytes, const std::string& sizes) {
  const CutMessage message(bytes, sizes);
  const Expected expected = Parse(bytes);
  server::Frame frame;
  const std::string error = server::ReadFrame(message.pieces(), &frame);
  if (!error.empty()) {
    Expect(!expected.accepted || !expected.plain,
           "what protobuf accepts is a frame", error);
    return;
  }
  Expect(expected.accepted, "what is a frame parses with protobuf");
  Expect((frame.kind == server::Frame::Kind::kChunk) == expected.is_chunk,
         "a frame's kind is protobuf's");
  const std::string& payload =
      expected.is_chunk ? expected.chunk.data() : expected.header;
  const wire::WireReader& read =
      expected.is_chunk ? frame.chunk.data : frame.header;
  Expect(read.left() == payload.size(), "a payload has protobuf's size");
  Expect(read.Rest() == payload, "a payload has protobuf's bytes");
  if (!expected.is_chunk) return;
  Expect(frame.chunk.tensor == expected.chunk.tensor() &&
             frame.chunk.offset == expected.chunk.offset(),
         "tensor and offset are protobuf's");
  v1::CorrectStreamResponse response;
  Expect(response.ParseFromString(
             wire::ChunkHead(v1::CorrectStreamResponse::kChunkFieldNumber,
                             frame.chunk.tensor, frame.chunk.offset,
                             payload.size()) +
             payload) &&
             response.has_chunk() &&
             response.chunk().tensor() == frame.chunk.tensor &&
             response.chunk().offset() == frame.chunk.offset &&
             response.chunk().data() == payload,
         "head and data are the response's chunk");
}

}  // namespace
}  // namespace counterweight::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  counterweight::fuzz::Input input(data, size);
  const std::string sizes = input.TakeBytes(input.TakeByte() % 8);
  counterweight::fuzz::CheckFrame(input.TakeRest(), sizes);
  return 0;
}
