#include "server/shared_memory/control.h"

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/shared_memory/shared_memory_client.h"

namespace counterweight::server {
namespace {

using std::string_literals::operator""s;
using std::string_view_literals::operator""sv;

std::string Parse(std::string_view packet, ControlRequest* request) {
  return ParseControlRequest(
      {reinterpret_cast<const uint8_t*>(packet.data()), packet.size()},
      request);
}

std::string Problem(std::string_view packet) {
  ControlRequest request;
  return Parse(packet, &request);
}

// Returns the packet with one byte replaced.
std::string With(std::string packet, size_t index, char byte) {
  packet.at(index) = byte;
  return packet;
}

constexpr std::string_view kHandle = "0123456789abcdef";

std::string Valid(int kind, uint64_t size) {
  if (kind % 4 == 0) return RegisterPacket(size, RegionAccess::kRead);
  if (kind % 4 == 1) return ReleasePacket(kHandle);
  if (kind % 4 == 2) return PartsPacket(size, RegionAccess::kRead, {7, 8, 9});
  return DevicePacket(size, RegionAccess::kWrite, {1, 2, 3}, {4, 5, 6});
}

std::string PacketOf(const ControlRequest& request) {
  switch (request.operation) {
    case ControlRequest::Operation::kRegister:
      return RegisterPacket(request.size, request.access);
    case ControlRequest::Operation::kRegisterDevice:
      return DevicePacket(request.size, request.access, request.device,
                          request.allocation);
    case ControlRequest::Operation::kRegisterParts:
      return PartsPacket(request.size, request.access, request.device);
    case ControlRequest::Operation::kRelease:
      break;
  }
  return ReleasePacket(
      std::string(request.handle.begin(), request.handle.end()));
}

TEST(Control, ARegisterIsReadFromItsBytes) {
  ControlRequest request;
  ASSERT_EQ(Parse("CWM1\x01\0\0\0\x02\0\0\0\0\0\0\0"
                  "\x08\x07\x06\x05\x04\x03\x02\x81"
                  "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"sv,
                  &request),
            "");
  EXPECT_EQ(request.operation, ControlRequest::Operation::kRegister);
  EXPECT_EQ(request.access, RegionAccess::kWrite);
  EXPECT_EQ(request.size, 0x8102030405060708U);
}

TEST(Control, AReleaseIsReadFromItsBytes) {
  ControlRequest request;
  ASSERT_EQ(Parse("CWM1\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                  "0123456789abcdef"sv,
                  &request),
            "");
  EXPECT_EQ(request.operation, ControlRequest::Operation::kRelease);
  EXPECT_EQ(std::string(request.handle.begin(), request.handle.end()), kHandle);
}

TEST(Control, ARegisterOfDeviceMemoryIsReadFromItsBytes) {
  ControlRequest request;
  const std::string allocation = std::string(62, 'h') + "\0\xff"s;
  ASSERT_EQ(Parse("CWM1\x03\0\0\0\x01\0\0\0\0\0\0\0"
                  "\x08\x07\x06\x05\x04\x03\x02\x81"
                  "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                  "fedcba9876543210"s +
                      allocation,
                  &request),
            "");
  EXPECT_EQ(request.operation, ControlRequest::Operation::kRegisterDevice);
  EXPECT_EQ(request.access, RegionAccess::kRead);
  EXPECT_EQ(request.size, 0x8102030405060708U);
  EXPECT_EQ(std::string(request.device.begin(), request.device.end()),
            "fedcba9876543210");
  EXPECT_EQ(std::string(request.allocation.begin(), request.allocation.end()),
            allocation);
}

TEST(Control, ARegisterOfPartsIsReadFromItsBytes) {
  ControlRequest request;
  ASSERT_EQ(Parse("CWM1\x04\0\0\0\x02\0\0\0\0\0\0\0"
                  "\x08\x07\x06\x05\x04\x03\x02\x81"
                  "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                  "fedcba9876543210"sv,
                  &request),
            "");
  EXPECT_EQ(request.operation, ControlRequest::Operation::kRegisterParts);
  EXPECT_EQ(request.access, RegionAccess::kWrite);
  EXPECT_EQ(request.size, 0x8102030405060708U);
  EXPECT_EQ(std::string(request.device.begin(), request.device.end()),
            "fedcba9876543210");
}

TEST(Control, WhatIsNotOfTheFormIsNamed) {
  const std::string registers = RegisterPacket(4096, RegionAccess::kRead);
  const std::string releases = ReleasePacket(kHandle);
  EXPECT_EQ(Problem(registers), "");
  EXPECT_NE(Problem("").find("40 bytes"), std::string::npos);
  EXPECT_NE(Problem(registers.substr(0, 39)).find("40 bytes"),
            std::string::npos);
  EXPECT_NE(Problem(registers + '\0').find("40 bytes"), std::string::npos);
  EXPECT_NE(Problem(With(registers, 3, '2')).find("CWM1"), std::string::npos);
  EXPECT_NE(Problem(With(registers, 4, 0)).find("operation"),
            std::string::npos);
  EXPECT_NE(Problem(With(registers, 4, 5)).find("operation"),
            std::string::npos);
  // The packet has another operation's size.
  EXPECT_NE(Problem(With(registers, 4, 3)).find("120 bytes"),
            std::string::npos);
  EXPECT_NE(Problem(With(registers, 4, 4)).find("56 bytes"), std::string::npos);
  EXPECT_NE(Problem(registers + std::string(80, '\0')).find("40 bytes"),
            std::string::npos);
  EXPECT_NE(Problem(With(registers, 7, 1)).find("operation"),
            std::string::npos);
  EXPECT_NE(Problem(With(registers, 8, 0)).find("access"), std::string::npos);
  EXPECT_NE(Problem(With(registers, 8, 3)).find("access"), std::string::npos);
  EXPECT_NE(Problem(With(registers, 15, 1)).find("12-15"), std::string::npos);
  EXPECT_NE(Problem(With(registers, 39, 1)).find("24-39"), std::string::npos);
  EXPECT_NE(Problem(With(releases, 8, 1)).find("8-23"), std::string::npos);
  EXPECT_NE(Problem(With(releases, 23, 1)).find("8-23"), std::string::npos);
}

TEST(Control, EveryPacketIsRefusedOrIsWhatItSays) {
  std::mt19937 random(5);
  int accepted = 0;
  for (int round = 0; round < 200000; ++round) {
    // Mutations of valid packets reach deeper than noise.
    std::string packet = Valid(round, random());
    for (auto left = random() % 3; left > 0; --left) {
      packet.at(random() % packet.size()) = static_cast<char>(random());
    }
    packet.resize(random() % 4 == 0 ? random() % 140 : packet.size());
    ControlRequest request;
    if (!Parse(packet, &request).empty()) continue;
    ++accepted;
    EXPECT_EQ(packet, PacketOf(request));
  }
  EXPECT_GT(accepted, 1000);
}

TEST(Control, AnAnswerCarriesTheHandle) {
  RegionHandle handle;
  std::copy(kHandle.begin(), kHandle.end(), handle.begin());
  EXPECT_EQ(SerializeAnswer(handle),
            "CWM1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
            "0123456789abcdef"sv);
}

TEST(Control, AnAnswerToAReleaseSaysWhetherTheMemoryIsUsed) {
  const std::string unused = "CWM1" + std::string(36, '\0');
  EXPECT_EQ(SerializeReleased(false), unused);
  EXPECT_EQ(SerializeReleased(true), With(unused, 16, 1));
}

TEST(Control, ARefusalCarriesCodeAndSentence) {
  EXPECT_EQ(
      SerializeAnswer(Refusal{grpc::StatusCode::RESOURCE_EXHAUSTED, "No."}),
      "CWM1\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
      "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0No."sv);
}

TEST(Control, ASentenceHasAtMostTwoHundredBytes) {
  EXPECT_EQ(SerializeAnswer(
                Refusal{grpc::StatusCode::INTERNAL, std::string(1000, 'x')})
                .size(),
            240U);
}

}  // namespace
}  // namespace counterweight::server
