#include "server/shared_memory/control.h"

#include <algorithm>
#include <string_view>

#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

constexpr std::string_view kMagic = "CWM1";
constexpr size_t kMaxMessageBytes = 200;
// Where the fields begin.
constexpr size_t kOperation = 4;
constexpr size_t kAccess = 8;
constexpr size_t kReserved = 12;
constexpr size_t kSize = 16;
constexpr size_t kHandle = 24;

template <typename Word>
Word LittleEndian(std::span<const uint8_t> packet, size_t begin) {
  Word word = 0;
  for (size_t i = 0; i < sizeof(Word); ++i) {
    word |= static_cast<Word>(packet[begin + i]) << (8 * i);
  }
  return word;
}

bool AreZero(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](uint8_t byte) { return byte == 0; });
}

std::string ParseRegister(std::span<const uint8_t> packet,
                          ControlRequest* request) {
  const auto access = LittleEndian<uint32_t>(packet, kAccess);
  if (access != static_cast<uint32_t>(RegionAccess::kRead) &&
      access != static_cast<uint32_t>(RegionAccess::kWrite)) {
    return fmt::format("bytes 8-11 are {}; access is 1 (read) or 2 (write)",
                       access);
  }
  if (!AreZero(packet.subspan(kHandle))) {
    return "bytes 24-39 of a register are not 0";
  }
  request->operation = ControlRequest::Operation::kRegister;
  request->access = static_cast<RegionAccess>(access);
  request->size = LittleEndian<uint64_t>(packet, kSize);
  request->handle = {};
  return "";
}

std::string ParseRelease(std::span<const uint8_t> packet,
                         ControlRequest* request) {
  if (!AreZero(packet.subspan(kAccess, kHandle - kAccess))) {
    return "bytes 8-23 of a release are not 0";
  }
  *request = ControlRequest{.operation = ControlRequest::Operation::kRelease};
  const auto handle = packet.subspan(kHandle);
  std::copy(handle.begin(), handle.end(), request->handle.begin());
  return "";
}

std::string AnswerHead(grpc::StatusCode code) {
  std::string packet(kControlPacketBytes, '\0');
  kMagic.copy(packet.data(), kMagic.size());
  // Codes are 0 to 16, so the other bytes of the word are 0.
  packet[kOperation] = static_cast<char>(code);
  return packet;
}

}  // namespace

std::string ParseControlRequest(std::span<const uint8_t> packet,
                                ControlRequest* request) {
  if (packet.size() != kControlPacketBytes) {
    return fmt::format("a request has {} bytes, no more and no less",
                       kControlPacketBytes);
  }
  if (!std::equal(kMagic.begin(), kMagic.end(), packet.begin())) {
    return "a request begins with CWM1";
  }
  if (!AreZero(packet.subspan(kReserved, kSize - kReserved))) {
    return "bytes 12-15 are not 0";
  }
  const auto operation = LittleEndian<uint32_t>(packet, kOperation);
  switch (static_cast<ControlRequest::Operation>(operation)) {
    case ControlRequest::Operation::kRegister:
      return ParseRegister(packet, request);
    case ControlRequest::Operation::kRelease:
      return ParseRelease(packet, request);
  }
  return fmt::format(
      "bytes 4-7 are {}; the operation is 1 (register) or 2 (release)",
      operation);
}

std::string SerializeAnswer(const RegionHandle& handle) {
  std::string packet = AnswerHead(grpc::StatusCode::OK);
  std::copy(handle.begin(), handle.end(), packet.begin() + kHandle);
  return packet;
}

std::string SerializeAnswer(const Refusal& refusal) {
  return AnswerHead(refusal.code) + refusal.message.substr(0, kMaxMessageBytes);
}

}  // namespace counterweight::server
