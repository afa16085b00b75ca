// Bounds of a CorrectRequest's wire format, checked before protobuf builds
// objects from it.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_REQUEST_SCAN_H_
#define COUNTERWEIGHT_SERVER_ENGINE_REQUEST_SCAN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "google/protobuf/io/zero_copy_stream.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// At most so many tensors, destinations and outputs, each: the contract has
// fewer roles.
inline constexpr int64_t kMaxRequestTensors = 16;

// At most so many bytes that are neither tensor data nor an entry per sequence:
// method, labels, ids, tags. An empty message of two bytes becomes an object of
// up to 160 bytes, so this is what bounds the objects: a request never takes
// more than 80 times these bytes (20 MiB) beside its data and its entries.
inline constexpr int64_t kMaxStructureBytes = int64_t{256} << 10;

// At most so many version spans, objects of 18 MiB. Finer versions fit the
// tensor POLICY_VERSIONS.
inline constexpr int64_t kMaxVersionSpans = int64_t{1} << 18;
// Numbers of a version span.
inline constexpr int64_t kVersionSpanFields = 4;

// Reads a serialized CorrectRequest once, in pieces of any size, and stops at
// the first thing that is too much: time and memory do not depend on what the
// bytes would become.
class RequestScan {
 public:
  // At most `max_sequences` group ids, row divisors and sequence lengths, each.
  // `has_data`: tensor data is bounded elsewhere; without it data counts as
  // structure.
  RequestScan(int64_t max_sequences, bool has_data)
      : max_sequences_(max_sequences), has_data_(has_data) {}

  // Takes the next bytes; false once the request is refused.
  bool Take(std::span<const uint8_t> bytes);

  // The limit that was exceeded; none if no limit was, or if the bytes are not
  // a message.
  const std::optional<Violation>& violation() const { return violation_; }

  // The bytes hold too much, or are not a message. A parser that reads a
  // ScannedStream takes the refusal for the end of the input.
  bool is_refused() const { return is_refused_; }

 private:
  // The message type that the fields belong to.
  enum class Level : uint8_t { kRequest, kLayout, kPacked, kTensor, kSpan };
  // The kind of the next bytes.
  enum class Mode : uint8_t { kTag, kVarint, kLength, kSkip, kEntries };
  enum class Counted : uint8_t {
    kNone,
    kTensors,
    kDestinations,
    kOutputs,
    kGroupIds,
    kRowDivisors,
    kSequenceLengths,
    kVersionSpans,
    kVersionSpanNumbers,
    kNumCounted,
  };
  struct Message {
    Level level;
    uint64_t end;  // position behind its last byte
  };

  Level level() const { return messages_[depth_ - 1].level; }
  bool TakeByte(uint8_t byte);
  bool BeginField(uint64_t tag);
  bool BeginPayload(uint64_t size);
  // The limit that the field counts towards.
  Counted CountedAs(uint32_t field) const;
  bool CountEntries(Counted what, int64_t count);
  bool CountStructure(uint64_t bytes);
  bool Refuse(const char* field, std::string description);
  bool Malformed();
  // Leaves the messages that end here.
  void EndMessages();

  const int64_t max_sequences_;
  const bool has_data_;
  std::optional<Violation> violation_;
  bool is_refused_ = false;

  // Request, layout, packed layout: the deepest path with fields of its own.
  std::array<Message, 3> messages_ = {{{Level::kRequest, UINT64_MAX}}};
  size_t depth_ = 1;
  Mode mode_ = Mode::kTag;
  uint64_t position_ = 0;
  uint64_t varint_ = 0;
  uint32_t varint_bytes_ = 0;
  uint32_t field_ = 0;                // of the innermost message
  uint32_t top_field_ = 0;            // of the request
  uint64_t payload_bytes_ = 0;        // left to skip or to count
  Counted counted_ = Counted::kNone;  // entries of the current field
  int64_t structure_bytes_ = 0;
  std::array<int64_t, static_cast<size_t>(Counted::kNumCounted)> counts_{};
};

// Passes a serialized CorrectRequest on to protobuf's parser and ends where the
// scan refuses it. REQUIRES: `input` and `scan` outlive this.
class ScannedStream final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  ScannedStream(google::protobuf::io::ZeroCopyInputStream* input,
                RequestScan* scan)
      : input_(input), scan_(scan) {}

  bool Next(const void** data, int* size) override;
  void BackUp(int count) override;
  bool Skip(int count) override;
  int64_t ByteCount() const override { return input_->ByteCount(); }

 private:
  google::protobuf::io::ZeroCopyInputStream* const input_;
  RequestScan* const scan_;
  int backed_up_ = 0;  // bytes that repeat and were scanned before
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_REQUEST_SCAN_H_
