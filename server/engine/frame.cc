#include "server/engine/frame.h"

#include <algorithm>
#include <cstring>

#include "server/engine/wire.h"

namespace counterweight::server {
namespace {

using wire::kFixed32;
using wire::kFixed64;
using wire::kLengthDelimited;
using wire::kMaxTagBytes;
using wire::kMaxVarintBytes;
using wire::kTypeBits;
using wire::kVarint;

constexpr uint32_t kHeaderField = 1;
constexpr uint32_t kChunkField = 2;
constexpr uint32_t kTensorField = 1;
constexpr uint32_t kOffsetField = 2;
constexpr uint32_t kDataField = 3;

// A position in a message. Every read tells whether the bytes were there.
class Cursor {
 public:
  explicit Cursor(Pieces message) : message_(message) {
    for (const auto& piece : message) end_ += piece.size();
  }

  size_t position() const { return position_; }
  size_t end() const { return end_; }
  bool AtEnd() const { return position_ == end_; }
  // Nothing behind `end` can be read any more.
  void Narrow(size_t end) { end_ = end; }

  bool Skip(uint64_t count) {
    if (count > end_ - position_) return false;
    position_ += count;
    within_ += count;
    while (piece_ < message_.size() && within_ >= message_[piece_].size()) {
      within_ -= message_[piece_].size();
      ++piece_;
    }
    return true;
  }

  bool ReadVarint(uint32_t max_bytes, uint64_t* value) {
    *value = 0;
    for (uint32_t shift = 0; shift < 7 * max_bytes; shift += 7) {
      // Pieces may be empty, the first one too.
      while (piece_ < message_.size() && within_ >= message_[piece_].size()) {
        within_ = 0;
        ++piece_;
      }
      if (AtEnd()) return false;
      const uint8_t byte = message_[piece_][within_];
      if (!Skip(1)) return false;
      *value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  // A field's number and wire type.
  bool ReadTag(uint32_t* field, uint32_t* type) {
    uint64_t tag = 0;
    if (!ReadVarint(kMaxTagBytes, &tag) || tag > UINT32_MAX) return false;
    *field = static_cast<uint32_t>(tag) >> kTypeBits;
    *type = static_cast<uint32_t>(tag) & ((1u << kTypeBits) - 1);
    return *field != 0;
  }

  // A length-delimited field's bytes, skipped.
  bool ReadRange(ByteRange* range) {
    uint64_t size = 0;
    if (!ReadVarint(kMaxTagBytes, &size) || size > INT32_MAX) return false;
    *range = {position_, static_cast<size_t>(size)};
    return Skip(size);
  }

  bool SkipField(uint32_t type) {
    uint64_t ignored = 0;
    ByteRange range;
    switch (type) {
      case kVarint:
        return ReadVarint(kMaxVarintBytes, &ignored);
      case kFixed64:
        return Skip(sizeof(uint64_t));
      case kLengthDelimited:
        return ReadRange(&range);
      case kFixed32:
        return Skip(sizeof(uint32_t));
      default:
        return false;
    }
  }

 private:
  Pieces message_;
  size_t piece_ = 0;
  size_t within_ = 0;
  size_t position_ = 0;
  size_t end_ = 0;
};

bool ReadChunk(Cursor cursor, ByteRange chunk, Frame* frame) {
  if (!cursor.Skip(chunk.begin - cursor.position())) return false;
  cursor.Narrow(chunk.begin + chunk.size);
  frame->payload = {chunk.begin, 0};
  while (!cursor.AtEnd()) {
    uint32_t field = 0;
    uint32_t type = 0;
    uint64_t value = 0;
    if (!cursor.ReadTag(&field, &type)) return false;
    if (field == kTensorField && type == kVarint) {
      if (!cursor.ReadVarint(kMaxVarintBytes, &value)) return false;
      frame->tensor = static_cast<uint32_t>(value);
    } else if (field == kOffsetField && type == kVarint) {
      if (!cursor.ReadVarint(kMaxVarintBytes, &frame->offset)) return false;
    } else if (field == kDataField && type == kLengthDelimited) {
      if (!cursor.ReadRange(&frame->payload)) return false;
    } else if (!cursor.SkipField(type)) {
      return false;
    }
  }
  return true;
}

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) {
    out->push_back(static_cast<char>(value | 0x80));
  }
  out->push_back(static_cast<char>(value));
}

void AppendTag(uint32_t field, uint32_t type, std::string* out) {
  AppendVarint(field << kTypeBits | type, out);
}

}  // namespace

std::string ReadFrame(Pieces message, Frame* frame) {
  constexpr char kNoMessage[] =
      "the frame is not a CorrectStreamRequest: its bytes do not parse";
  constexpr char kNotOne[] =
      "a frame must hold exactly one header or one chunk";
  *frame = {};
  Cursor cursor(message);
  uint32_t kind = 0;
  ByteRange range;
  while (!cursor.AtEnd()) {
    uint32_t field = 0;
    uint32_t type = 0;
    if (!cursor.ReadTag(&field, &type)) return kNoMessage;
    if (type != kLengthDelimited ||
        (field != kHeaderField && field != kChunkField)) {
      if (!cursor.SkipField(type)) return kNoMessage;
      continue;
    }
    // At once: reading on would take time that a client decides.
    if (kind != 0) return kNotOne;
    kind = field;
    if (!cursor.ReadRange(&range)) return kNoMessage;
  }
  if (kind == 0) return kNotOne;
  frame->payload = range;
  if (kind == kHeaderField) return "";
  frame->kind = Frame::Kind::kChunk;
  return ReadChunk(Cursor(message), range, frame) ? "" : kNoMessage;
}

void CopyRange(Pieces message, ByteRange range, void* to) {
  auto* out = static_cast<uint8_t*>(to);
  size_t skip = range.begin;
  size_t left = range.size;
  for (const auto& piece : message) {
    if (left == 0) return;
    if (skip >= piece.size()) {
      skip -= piece.size();
      continue;
    }
    const size_t count = std::min(left, piece.size() - skip);
    std::memcpy(out, piece.data() + skip, count);
    out += count;
    left -= count;
    skip = 0;
  }
}

std::string ChunkHead(uint32_t tensor, uint64_t offset, size_t data_size) {
  std::string chunk;
  AppendTag(kTensorField, kVarint, &chunk);
  AppendVarint(tensor, &chunk);
  AppendTag(kOffsetField, kVarint, &chunk);
  AppendVarint(offset, &chunk);
  AppendTag(kDataField, kLengthDelimited, &chunk);
  AppendVarint(data_size, &chunk);
  // CorrectStreamResponse.chunk.
  constexpr uint32_t kResponseChunkField = 3;
  std::string head;
  AppendTag(kResponseChunkField, kLengthDelimited, &head);
  AppendVarint(chunk.size() + data_size, &head);
  return head + chunk;
}

}  // namespace counterweight::server
