#include "server/engine/request_scan.h"

#include <algorithm>
#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

constexpr int64_t kMaxSequences = 1000;

// Scans `bytes` in pieces of `piece` bytes and returns "" if accepted, "?" if
// malformed, else the violation's field.
std::string Scan(const std::string& bytes, size_t piece, bool has_data = true) {
  RequestScan scan(kMaxSequences, has_data);
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  for (size_t at = 0; at < bytes.size(); at += piece) {
    if (scan.Take({data + at, std::min(piece, bytes.size() - at)})) continue;
    return scan.violation() ? scan.violation()->field : "?";
  }
  return "";
}

// The same for pieces of every size.
std::string Scan(const std::string& bytes, bool has_data = true) {
  const std::string whole = Scan(bytes, bytes.size() + 1, has_data);
  for (const size_t piece : {1, 2, 3, 7, 4096}) {
    EXPECT_EQ(Scan(bytes, piece, has_data), whole) << piece;
  }
  return whole;
}

std::string Scan(const v1::CorrectRequest& request, bool has_data = true) {
  return Scan(request.SerializeAsString(), has_data);
}

// Returns a request with the largest permitted number of each part.
v1::CorrectRequest Largest() {
  v1::CorrectRequest request;
  for (int i = 0; i < kMaxRequestTensors; ++i) {
    request.add_tensors()->set_data(std::string(1 << 12, '\xff'));
    request.add_destinations()->mutable_shared_memory()->set_handle("handle");
    request.add_outputs(v1::TENSOR_ROLE_WEIGHTS);
  }
  for (int i = 0; i < kMaxSequences; ++i) {
    request.add_group_ids(-i);  // ten bytes each
    request.add_row_divisors(i);
    request.mutable_layout()->mutable_packed()->add_sequence_lengths(i << 20);
  }
  for (int64_t i = 0; i < kMaxVersionSpans; ++i) {
    v1::VersionSpan* const span = request.add_version_spans();
    span->set_sequence(i);
    span->set_start(i);
    span->set_end(-1);  // ten bytes
    span->set_policy_version(1);
  }
  request.mutable_layout()->mutable_packed()->set_padded_length(1 << 30);
  request.set_seed(1);
  request.mutable_global_counts()->set_weight_sum(0.5);
  request.mutable_method()->mutable_dialect()->set_system(
      std::string(kMaxStructureBytes - 1000, 's'));
  return request;
}

TEST(RequestScan, TheLargestRequestPasses) {
  EXPECT_EQ(Scan(Largest()), "");
  EXPECT_EQ(Scan(v1::CorrectRequest()), "");
}

TEST(RequestScan, OneTooManyIsRefusedByName) {
  v1::CorrectRequest request = Largest();
  request.add_tensors();
  EXPECT_EQ(Scan(request), "tensors");
  request = Largest();
  request.add_destinations();
  EXPECT_EQ(Scan(request), "destinations");
  request = Largest();
  request.add_outputs(v1::TENSOR_ROLE_WEIGHTS);
  EXPECT_EQ(Scan(request), "outputs");
  request = Largest();
  request.add_group_ids(1);
  EXPECT_EQ(Scan(request), "group_ids");
  request = Largest();
  request.add_row_divisors(1);
  EXPECT_EQ(Scan(request), "row_divisors");
  request = Largest();
  request.mutable_layout()->mutable_packed()->add_sequence_lengths(1);
  EXPECT_EQ(Scan(request), "layout.packed.sequence_lengths");
  request = Largest();
  request.add_version_spans();
  EXPECT_EQ(Scan(request), "version_spans");
}

TEST(RequestScan, ASpanHasNoRoomForOtherThanItsNumbers) {
  // Field 12, a span, with field 1 as bytes; with field 5.
  for (const char* const number : {"\x0a\x02", "\x2a\x02"}) {
    const std::string span = std::string("b\x04") + number + "xx";
    std::string spans;
    while (static_cast<int64_t>(spans.size()) <= 2 * kMaxStructureBytes) {
      spans += span;
    }
    EXPECT_EQ(Scan(spans), "version_spans");
  }
  // A number that repeats in one span.
  std::string numbers;
  for (int64_t i = 0; i <= kMaxVersionSpans * kVersionSpanFields; ++i) {
    numbers += "\x08\x01";
  }
  // Its length as a varint: 2097154 bytes.
  EXPECT_EQ(numbers.size(), 2097154u);
  EXPECT_EQ(Scan("b\x82\x80\x80\x01" + numbers), "version_spans");
}

TEST(RequestScan, StructureIsBoundedAndItsFieldNamed) {
  const std::string large(kMaxStructureBytes, 'x');
  v1::CorrectRequest request;
  request.mutable_labels()->set_run(large);
  EXPECT_EQ(Scan(request), "labels");
  request.Clear();
  request.mutable_method()->mutable_preset()->set_name(large);
  EXPECT_EQ(Scan(request), "method");
  // Field 100, a varint.
  std::string unknown;
  while (unknown.size() <= kMaxStructureBytes) unknown += "\xa0\x06\x01";
  EXPECT_EQ(Scan(unknown), "unknown fields");
  // The field is inside a tensor.
  request.Clear();
  request.add_tensors()->mutable_shared_memory()->set_handle(large);
  EXPECT_EQ(Scan(request), "tensors");
}

TEST(RequestScan, AHeaderHasNoRoomForData) {
  v1::CorrectRequest request;
  request.add_tensors()->set_data(std::string(kMaxStructureBytes, 'x'));
  EXPECT_EQ(Scan(request, /*has_data=*/true), "");
  EXPECT_EQ(Scan(request, /*has_data=*/false), "tensors");
}

// Encoders may leave repeated numbers unpacked.
TEST(RequestScan, UnpackedEntriesCountAsPackedOnesDo) {
  std::string ids;
  for (int i = 0; i < kMaxSequences; ++i) ids += "\x50\xff\x01";
  EXPECT_EQ(Scan(ids), "");
  EXPECT_EQ(Scan(ids + "\x50\x01"), "group_ids");
}

// Fields of one message in several parts add up as protobuf merges them.
TEST(RequestScan, PartsOfOneFieldAddUp) {
  v1::CorrectRequest request;
  for (int i = 0; i < kMaxSequences / 2 + 1; ++i) {
    request.mutable_layout()->mutable_packed()->add_sequence_lengths(i);
  }
  const std::string half = request.SerializeAsString();
  EXPECT_EQ(Scan(half), "");
  EXPECT_EQ(Scan(half + half), "layout.packed.sequence_lengths");
}

TEST(RequestScan, WhatIsNoMessageIsRefusedWithoutAField) {
  for (const std::string& bytes :
       {std::string(11, '\xff'),          // no tag
        std::string("\x23\x24"),          // a group
        std::string("\x00\x00", 2),       // field 0
        std::string("\x1a\x02\x0a\x05"),  // longer than the message around it
        std::string("\x22\xff\xff\xff\xff\x0f")}) {
    EXPECT_EQ(Scan(bytes), "?") << testing::PrintToString(bytes);
  }
}

// Protobuf returns bytes and reads them again.
TEST(ScannedStream, ParsesWhatPassesAndEndsWhereItIsRefused) {
  const std::string bytes = Largest().SerializeAsString();
  for (const int block : {1, 100, 1 << 20}) {
    google::protobuf::io::ArrayInputStream input(
        bytes.data(), static_cast<int>(bytes.size()), block);
    RequestScan scan(kMaxSequences, /*has_data=*/true);
    ScannedStream scanned(&input, &scan);
    v1::CorrectRequest parsed;
    ASSERT_TRUE(parsed.ParseFromZeroCopyStream(&scanned)) << block;
    EXPECT_EQ(parsed.SerializeAsString(), bytes);
  }
  std::string bomb(size_t{1} << 20, '\x22');
  for (size_t i = 1; i < bomb.size(); i += 2) bomb[i] = '\0';
  google::protobuf::io::ArrayInputStream input(
      bomb.data(), static_cast<int>(bomb.size()), /*block_size=*/64);
  RequestScan scan(kMaxSequences, /*has_data=*/true);
  ScannedStream scanned(&input, &scan);
  v1::CorrectRequest parsed;
  // The parser decides whether the bytes before are a message.
  static_cast<void>(parsed.ParseFromZeroCopyStream(&scanned));
  EXPECT_EQ(scan.violation()->field, "tensors");
  EXPECT_LE(parsed.tensors_size(), 64);
}

TEST(ScannedStream, BytesThatComeAgainCountOnce) {
  std::string tensors;
  for (int i = 0; i < kMaxRequestTensors; ++i) tensors += {'\x22', '\0'};
  google::protobuf::io::ArrayInputStream input(
      tensors.data(), static_cast<int>(tensors.size()));
  RequestScan scan(kMaxSequences, /*has_data=*/true);
  ScannedStream scanned(&input, &scan);
  const void* data = nullptr;
  int size = 0;
  ASSERT_TRUE(scanned.Next(&data, &size));
  scanned.BackUp(size / 2);
  EXPECT_TRUE(scanned.Next(&data, &size)) << scan.violation()->field;
  EXPECT_EQ(size, static_cast<int>(tensors.size()) / 2);
}

TEST(ScannedStream, SkippedBytesAreScanned) {
  const std::string bytes =
      Largest().SerializeAsString() + "\x22" + std::string(1, '\0');
  google::protobuf::io::ArrayInputStream input(
      bytes.data(), static_cast<int>(bytes.size()), /*block_size=*/1000);
  RequestScan scan(kMaxSequences, /*has_data=*/true);
  ScannedStream scanned(&input, &scan);
  EXPECT_FALSE(scanned.Skip(static_cast<int>(bytes.size())));
  EXPECT_EQ(scan.violation()->field, "tensors");
}

}  // namespace
}  // namespace counterweight::server
