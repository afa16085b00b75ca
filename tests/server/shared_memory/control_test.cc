#include "server/shared_memory/control.h"

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/shared_memory/shared_memory_client.h"

namespace counterweight::server {
namespace {

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

// The packet with one byte replaced.
std::string With(std::string packet, size_t index, char byte) {
  packet.at(index) = byte;
  return packet;
}

constexpr std::string_view kHandle = "0123456789abcdef";

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
  EXPECT_NE(Problem(With(registers, 4, 3)).find("operation"),
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
    std::string packet = round % 2 == 0
                             ? RegisterPacket(random(), RegionAccess::kRead)
                             : ReleasePacket(kHandle);
    for (auto left = random() % 3; left > 0; --left) {
      packet.at(random() % packet.size()) = static_cast<char>(random());
    }
    packet.resize(random() % 4 == 0 ? random() % 64 : packet.size());
    ControlRequest request;
    if (!Parse(packet, &request).empty()) continue;
    ++accepted;
    EXPECT_EQ(packet, request.operation == ControlRequest::Operation::kRegister
                          ? RegisterPacket(request.size, request.access)
                          : ReleasePacket(std::string(request.handle.begin(),
                                                      request.handle.end())));
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
