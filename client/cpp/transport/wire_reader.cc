#include "client/cpp/transport/wire_reader.h"

#include <algorithm>
#include <cstring>

#include "client/cpp/transport/wire_format.h"

namespace counterweight::client {

WireReader::WireReader(Pieces message) : pieces_(message) {
  for (const auto& piece : message) left_ += piece.size();
}

void WireReader::SkipEmptyPieces() {
  while (piece_ < pieces_.size() && within_ == pieces_[piece_].size()) {
    within_ = 0;
    ++piece_;
  }
}

bool WireReader::Skip(uint64_t count) {
  if (count > left_) return false;
  left_ -= count;
  while (count > 0) {
    SkipEmptyPieces();
    const size_t step =
        std::min<size_t>(count, pieces_[piece_].size() - within_);
    within_ += step;
    count -= step;
  }
  return true;
}

bool WireReader::Copy(size_t count, void* to) {
  if (count > left_) return false;
  left_ -= count;
  for (auto* out = static_cast<uint8_t*>(to); count > 0;) {
    SkipEmptyPieces();
    const auto piece = pieces_[piece_].subspan(within_);
    const size_t step = std::min(count, piece.size());
    std::memcpy(out, piece.data(), step);
    out += step;
    within_ += step;
    count -= step;
  }
  return true;
}

void WireReader::AppendUpTo(const WireReader& later, std::string* out) const {
  const size_t count = left_ - later.left_;
  const size_t begin = out->size();
  out->resize(begin + count);
  WireReader copy = *this;
  copy.Copy(count, out->data() + begin);
}

std::string WireReader::Rest() const {
  WireReader end = *this;
  end.left_ = 0;
  std::string bytes;
  AppendUpTo(end, &bytes);
  return bytes;
}

bool WireReader::ReadVarint(uint64_t* value) {
  *value = 0;
  for (uint32_t shift = 0; shift < 64; shift += 7) {
    uint8_t byte = 0;
    if (!Copy(1, &byte)) return false;
    *value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool WireReader::ReadTag(uint32_t* field, uint32_t* type) {
  uint64_t tag = 0;
  if (!ReadVarint(&tag) || tag > UINT32_MAX) return false;
  *field = static_cast<uint32_t>(tag >> 3);
  *type = static_cast<uint32_t>(tag & 7);
  return *field != 0;
}

bool WireReader::ReadBytes(WireReader* bytes) {
  uint64_t size = 0;
  if (!ReadVarint(&size) || size > left_) return false;
  *bytes = *this;
  bytes->left_ = size;
  return Skip(size);
}

bool WireReader::SkipField(uint32_t type) {
  uint64_t ignored = 0;
  WireReader bytes;
  switch (type) {
    case kVarint:
      return ReadVarint(&ignored);
    case kFixed64:
      return Skip(sizeof(uint64_t));
    case kLengthDelimited:
      return ReadBytes(&bytes);
    case kFixed32:
      return Skip(sizeof(uint32_t));
    default:
      return false;
  }
}

}  // namespace counterweight::client
