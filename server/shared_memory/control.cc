#include "server/shared_memory/control.h"

#include <algorithm>
#include <string_view>

#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

constexpr std::string_view kMagic = "CWM1";
constexpr size_t kMaxReasonBytes = 200;
// Offsets of the fields.
constexpr size_t kOperation = 4;
constexpr size_t kAccess = 8;
constexpr size_t kReserved = 12;
constexpr size_t kSize = 16;
constexpr size_t kHandle = 24;
constexpr size_t kDevice = kControlPacketBytes;
constexpr size_t kAllocation = kDevice + sizeof(kernels::DeviceUuid);

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

template <typename Bytes>
Bytes BytesAt(std::span<const uint8_t> packet, size_t begin) {
  Bytes bytes;
  std::copy_n(packet.begin() + begin, bytes.size(), bytes.begin());
  return bytes;
}

// Parses the common part of all kinds of register.
std::string ParseRegister(std::span<const uint8_t> packet,
                          ControlRequest* request) {
  const auto access = LittleEndian<uint32_t>(packet, kAccess);
  if (access != static_cast<uint32_t>(RegionAccess::kRead) &&
      access != static_cast<uint32_t>(RegionAccess::kWrite)) {
    return fmt::format("bytes 8-11 are {}; access is 1 (read) or 2 (write)",
                       access);
  }
  if (!AreZero(packet.subspan(kHandle, kControlPacketBytes - kHandle))) {
    return "bytes 24-39 of a register are not 0";
  }
  request->access = static_cast<RegionAccess>(access);
  request->size = LittleEndian<uint64_t>(packet, kSize);
  return "";
}

std::string ParseRegisterDevice(std::span<const uint8_t> packet,
                                ControlRequest* request) {
  request->device = BytesAt<kernels::DeviceUuid>(packet, kDevice);
  request->allocation = BytesAt<kernels::IpcHandle>(packet, kAllocation);
  return ParseRegister(packet, request);
}

std::string ParseRegisterParts(std::span<const uint8_t> packet,
                               ControlRequest* request) {
  request->device = BytesAt<kernels::DeviceUuid>(packet, kDevice);
  return ParseRegister(packet, request);
}

size_t BytesOf(ControlRequest::Operation operation) {
  switch (operation) {
    case ControlRequest::Operation::kRegisterDevice:
      return kDevicePacketBytes;
    case ControlRequest::Operation::kRegisterParts:
      return kPartsPacketBytes;
    case ControlRequest::Operation::kRegister:
    case ControlRequest::Operation::kRelease:
      break;
  }
  return kControlPacketBytes;
}

std::string ParseRelease(std::span<const uint8_t> packet,
                         ControlRequest* request) {
  if (!AreZero(packet.subspan(kAccess, kHandle - kAccess))) {
    return "bytes 8-23 of a release are not 0";
  }
  request->handle = BytesAt<RegionHandle>(packet, kHandle);
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
  if (packet.size() < kControlPacketBytes) {
    return fmt::format("a request has at least {} bytes", kControlPacketBytes);
  }
  if (!std::equal(kMagic.begin(), kMagic.end(), packet.begin())) {
    return "a request begins with CWM1";
  }
  if (!AreZero(packet.subspan(kReserved, kSize - kReserved))) {
    return "bytes 12-15 are not 0";
  }
  using Operation = ControlRequest::Operation;
  const auto operation = LittleEndian<uint32_t>(packet, kOperation);
  *request = {.operation = static_cast<Operation>(operation)};
  const size_t bytes = BytesOf(request->operation);
  if (packet.size() != bytes) {
    return fmt::format("this request has {} bytes, no more and no less", bytes);
  }
  switch (request->operation) {
    case Operation::kRegister:
      return ParseRegister(packet, request);
    case Operation::kRelease:
      return ParseRelease(packet, request);
    case Operation::kRegisterDevice:
      return ParseRegisterDevice(packet, request);
    case Operation::kRegisterParts:
      return ParseRegisterParts(packet, request);
  }
  return fmt::format(
      "bytes 4-7 are {}; the operation is 1 (register), 2 (release), 3 "
      "(register device memory) or 4 (register device memory in parts)",
      operation);
}

std::string SerializeAnswer(const RegionHandle& handle) {
  std::string packet = AnswerHead(grpc::StatusCode::OK);
  std::copy(handle.begin(), handle.end(), packet.begin() + kHandle);
  return packet;
}

std::string SerializeReleased(bool in_use) {
  std::string packet = AnswerHead(grpc::StatusCode::OK);
  packet[kSize] = in_use ? '\1' : '\0';
  return packet;
}

std::string SerializeAnswer(const Refusal& refusal) {
  return AnswerHead(refusal.code) + refusal.message.substr(0, kMaxReasonBytes);
}

}  // namespace counterweight::server
