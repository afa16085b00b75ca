#include "server/engine/request_scan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "counterweight/v1/correction_service.pb.h"
#include "proto/wire/wire_format.h"
#include "server/engine/names.h"

namespace counterweight::server {
namespace {

std::string NameOf(uint32_t field) {
  const auto* descriptor = v1::CorrectRequest::descriptor()->FindFieldByNumber(
      static_cast<int>(field));
  // Newer versions of protobuf return a view.
  return descriptor == nullptr ? "unknown fields"
                               : std::string(descriptor->name());
}

}  // namespace

bool RequestScan::Take(std::span<const uint8_t> bytes) {
  while (!is_refused_ && !bytes.empty()) {
    if (mode_ == Mode::kSkip || mode_ == Mode::kEntries) {
      const size_t count = std::min<uint64_t>(payload_bytes_, bytes.size());
      if (mode_ == Mode::kEntries) {
        // The last byte of each varint has no continuation bit.
        const auto entries = std::count_if(
            bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(count),
            [](uint8_t byte) { return byte < 0x80; });
        if (!CountEntries(counted_, entries)) return false;
      }
      position_ += count;
      payload_bytes_ -= count;
      bytes = bytes.subspan(count);
      if (payload_bytes_ == 0) EndMessages();
      continue;
    }
    if (!TakeByte(bytes.front())) return false;
    bytes = bytes.subspan(1);
  }
  return !is_refused_;
}

bool RequestScan::TakeByte(uint8_t byte) {
  ++position_;
  if (!CountStructure(1)) return false;
  varint_ |= uint64_t{byte & 0x7fU} << (7 * varint_bytes_);
  ++varint_bytes_;
  const uint32_t max_bytes =
      mode_ == Mode::kVarint ? wire::kMaxVarintBytes : wire::kMaxTagBytes;
  if (byte >= 0x80) return varint_bytes_ < max_bytes || Malformed();
  const uint64_t value = std::exchange(varint_, 0);
  // Entries have a bound of their own, and tags in front of them too.
  if (counted_ != Counted::kNone && mode_ == Mode::kVarint) {
    structure_bytes_ -= varint_bytes_;
  }
  varint_bytes_ = 0;
  if (mode_ == Mode::kTag) return BeginField(value);
  if (mode_ == Mode::kLength) return BeginPayload(value);
  EndMessages();
  return true;
}

bool RequestScan::BeginField(uint64_t tag) {
  if (tag > UINT32_MAX || tag >> wire::kTypeBits == 0) return Malformed();
  field_ = static_cast<uint32_t>(tag) >> wire::kTypeBits;
  const auto type = static_cast<uint32_t>(tag) & ((1U << wire::kTypeBits) - 1);
  if (level() == Level::kRequest) top_field_ = field_;
  counted_ = Counted::kNone;
  switch (type) {
    case wire::kVarint:
      mode_ = Mode::kVarint;
      counted_ = CountedAs(field_);
      // An entry that is not packed has a tag of its own, of one byte.
      if (counted_ != Counted::kNone) --structure_bytes_;
      return CountEntries(counted_, 1);
    case wire::kLengthDelimited:
      mode_ = Mode::kLength;
      return true;
    case wire::kFixed64:
    case wire::kFixed32:
      mode_ = Mode::kSkip;
      payload_bytes_ = type == wire::kFixed64 ? 8 : 4;
      return CountStructure(payload_bytes_);
    default:
      return Malformed();  // proto3 has no groups
  }
}

RequestScan::Counted RequestScan::CountedAs(uint32_t field) const {
  if (level() == Level::kPacked) {
    return field == v1::PackedLayout::kSequenceLengthsFieldNumber
               ? Counted::kSequenceLengths
               : Counted::kNone;
  }
  if (level() == Level::kSpan) {
    return field >= 1 && field <= kVersionSpanFields
               ? Counted::kVersionSpanNumbers
               : Counted::kNone;
  }
  if (level() != Level::kRequest) return Counted::kNone;
  switch (field) {
    case v1::CorrectRequest::kOutputsFieldNumber:
      return Counted::kOutputs;
    case v1::CorrectRequest::kGroupIdsFieldNumber:
      return Counted::kGroupIds;
    default:
      return Counted::kNone;
  }
}

bool RequestScan::BeginPayload(uint64_t size) {
  if (size > wire::kMaxLength || size > messages_[depth_ - 1].end - position_) {
    return Malformed();
  }
  const auto enter = [&](Level inner) {
    messages_[depth_++] = {inner, position_ + size};
    mode_ = Mode::kTag;
    EndMessages();
    return true;
  };
  mode_ = Mode::kSkip;
  payload_bytes_ = size;
  switch (level()) {
    case Level::kRequest:
      if (field_ == v1::CorrectRequest::kTensorsFieldNumber) {
        return CountEntries(Counted::kTensors, 1) && enter(Level::kTensor);
      }
      if (field_ == v1::CorrectRequest::kDestinationsFieldNumber) {
        return CountEntries(Counted::kDestinations, 1) && enter(Level::kTensor);
      }
      if (field_ == v1::CorrectRequest::kLayoutFieldNumber) {
        return enter(Level::kLayout);
      }
      if (field_ == v1::CorrectRequest::kVersionSpansFieldNumber) {
        // Its tag and its length, of one byte each, have the entries' bound.
        structure_bytes_ -= 2;
        return CountEntries(Counted::kVersionSpans, 1) && enter(Level::kSpan);
      }
      if (field_ == v1::CorrectRequest::kRowDivisorsFieldNumber) {
        // Numbers of eight bytes. Those that are not packed are structure.
        if (size == 0) EndMessages();
        return CountEntries(Counted::kRowDivisors,
                            static_cast<int64_t>(size / sizeof(double)));
      }
      break;
    case Level::kLayout:
      if (field_ == v1::Layout::kPackedFieldNumber) {
        return enter(Level::kPacked);
      }
      break;
    case Level::kTensor:
      if (has_data_ && field_ == v1::Tensor::kDataFieldNumber) {
        if (size == 0) EndMessages();
        return true;
      }
      break;
    case Level::kPacked:
    case Level::kSpan:
      break;
  }
  // A span's numbers do not repeat, so they are never packed.
  counted_ = level() == Level::kSpan ? Counted::kNone : CountedAs(field_);
  if (counted_ != Counted::kNone) {
    mode_ = Mode::kEntries;
  } else if (!CountStructure(size)) {
    return false;
  }
  if (size == 0) EndMessages();
  return true;
}

void RequestScan::EndMessages() {
  mode_ = Mode::kTag;
  while (depth_ > 1 && messages_[depth_ - 1].end <= position_) --depth_;
}

bool RequestScan::CountEntries(Counted what, int64_t count) {
  int64_t& counted = counts_[static_cast<size_t>(what)];
  counted += count;
  switch (what) {
    case Counted::kNone:
    case Counted::kNumCounted:
      return true;
    case Counted::kTensors:
    case Counted::kDestinations:
    case Counted::kOutputs:
      return counted <= kMaxRequestTensors ||
             Refuse(what == Counted::kTensors        ? "tensors"
                    : what == Counted::kDestinations ? "destinations"
                                                     : "outputs",
                    Concat("has more than ", kMaxRequestTensors,
                           " entries; a role stands there once at most"));
    case Counted::kGroupIds:
    case Counted::kRowDivisors:
    case Counted::kSequenceLengths:
      return counted <= max_sequences_ ||
             Refuse(what == Counted::kGroupIds ? "group_ids"
                    : what == Counted::kRowDivisors
                        ? "row_divisors"
                        : "layout.packed.sequence_lengths",
                    Concat("has more than ", max_sequences_,
                           " entries, the most sequences of a request"));
    case Counted::kVersionSpans:
      return counted <= kMaxVersionSpans ||
             Refuse(
                 "version_spans",
                 Concat("has more than ", kMaxVersionSpans,
                        " entries; send the tensor POLICY_VERSIONS instead"));
    case Counted::kVersionSpanNumbers:
      return counted <= kMaxVersionSpans * kVersionSpanFields ||
             Refuse("version_spans", "has numbers that come more than once");
  }
  return true;
}

bool RequestScan::CountStructure(uint64_t bytes) {
  structure_bytes_ += static_cast<int64_t>(bytes);
  if (structure_bytes_ <= kMaxStructureBytes) return true;
  is_refused_ = true;
  violation_ =
      Violation{NameOf(top_field_),
                Concat("the request has more than ", kMaxStructureBytes,
                       " bytes beside tensor data, sequence lengths, group "
                       "ids, row divisors "
                       "and version spans; this field passed the limit")};
  return false;
}

bool RequestScan::Refuse(const char* field, std::string description) {
  is_refused_ = true;
  violation_ = Violation{field, std::move(description)};
  return false;
}

bool RequestScan::Malformed() {
  is_refused_ = true;
  return false;
}

bool ScannedStream::Next(const void** data, int* size) {
  if (!input_->Next(data, size)) return false;
  const int again = std::min(backed_up_, *size);
  backed_up_ -= again;
  const auto* bytes = static_cast<const uint8_t*>(*data);
  return scan_->Take({bytes + again, static_cast<size_t>(*size - again)});
}

void ScannedStream::BackUp(int count) {
  backed_up_ += count;
  input_->BackUp(count);
}

bool ScannedStream::Skip(int count) {
  const void* data = nullptr;
  int size = 0;
  while (count > 0) {
    if (!Next(&data, &size)) return false;
    if (size > count) BackUp(size - count);
    count -= std::min(size, count);
  }
  return true;
}

}  // namespace counterweight::server
