// Tokens, and files that change while the server runs.
#include "server/access/access.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/access/tls_context.h"
#include "server/access/token_table.h"
#include "server/access/watched.h"
#include "server/base/config_error.h"
#include "spdlog/logger.h"
#include "spdlog/sinks/null_sink.h"
#include "spdlog/sinks/ostream_sink.h"
#include "tests/server/signer.h"
#include "tests/server/temporary_folder.h"

namespace counterweight::server {
namespace {

using ::testing::HasSubstr;

constexpr char kToken[] = "known-token-0123456789";

std::string LineOf(const std::string& token) {
  return TokenLine("known", token).value() + "\n";
}

TEST(TokenTable, EveryByteOfTheHashCounts) {
  const std::string line = LineOf(kToken);
  const auto table = *TokenTable::Parse(line);
  ASSERT_NE(table->Find(kToken), nullptr);
  EXPECT_EQ(table->Find(kToken)->name, "known");
  const size_t digits = line.find(':') + 1;
  for (size_t i = digits; i < digits + 64; ++i) {
    std::string other = line;
    other[i] = other[i] == '0' ? '1' : '0';
    EXPECT_EQ((*TokenTable::Parse(other))->Find(kToken), nullptr) << i - digits;
  }
}

TEST(TokenTable, ATokenWhoseHashBeginsOrEndsAlikeIsAnother) {
  const auto table = *TokenTable::Parse(LineOf(kToken));
  // The first two bytes of its SHA-256 are those of kToken's, and the last two.
  EXPECT_EQ(table->Find("guessed-token-0000008355"), nullptr);
  EXPECT_EQ(table->Find("guessed-token-0000134191"), nullptr);
}

class AccessTest : public testing::Test {
 protected:
  std::unique_ptr<Access> Load() {
    std::ofstream(folder_.File("tokens")) << LineOf(kToken);
    Config config;
    config.tokens = folder_.File("tokens");
    return Access::Load(config, &log_).value();
  }

  const TemporaryFolder folder_;
  RequestLog log_{std::make_shared<spdlog::logger>(
      "", std::make_shared<spdlog::sinks::null_sink_mt>())};
};

TEST_F(AccessTest, SeveralTokensAreRefusedThoughOneIsRight) {
  const auto access = Load();
  const std::string bearer = std::string("Bearer ") + kToken;
  Access::Credentials credentials;
  credentials.authorization = bearer;
  EXPECT_TRUE(access->Check(credentials).ok());
  credentials.has_several = true;
  const grpc::Status status = access->Check(credentials);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(status.error_message(), HasSubstr("several 'authorization'"));
}

TEST_F(AccessTest, WhatProbesCallNeedsNoToken) {
  const auto access = Load();
  Access::Credentials credentials;
  EXPECT_FALSE(access->Check(credentials).ok());
  credentials.needs_token = false;
  EXPECT_TRUE(access->Check(credentials).ok());
}

// As a mounted secret is: the file is a link through a folder, and an update
// replaces the folder's link alone.
TEST_F(AccessTest, AFileBehindANewLinkIsReadAgain) {
  namespace fs = std::filesystem;
  for (const char* const version : {"1", "2"}) {
    fs::create_directory(folder_.File(version));
    std::ofstream(folder_.File(std::string(version) + "/file")) << version;
  }
  fs::create_symlink("1", folder_.File("data"));
  const std::string path = folder_.File("file");
  fs::create_symlink("data/file", path);
  Watched<std::string> watched(
      "file", {path},
      [&]() -> absl::StatusOr<std::shared_ptr<const std::string>> {
        std::string text;
        std::ifstream(path) >> text;
        return std::make_shared<const std::string>(text);
      },
      &log_);
  ASSERT_TRUE(watched.Start().ok());
  EXPECT_EQ(*watched.Get(), "1");
  fs::create_symlink("2", folder_.File("next"));
  fs::rename(folder_.File("next"), folder_.File("data"));
  watched.Look();
  EXPECT_EQ(*watched.Get(), "2");
}

// A file with unusable content, such as a key without permission or a
// certificate of tomorrow, may become right without another content.
TEST_F(AccessTest, AWrongFileIsReadUntilItIsRight) {
  const std::string path = folder_.File("file");
  std::ofstream(path) << "one";
  absl::StatusOr<std::shared_ptr<const int>> next = std::make_shared<int>(1);
  int reads = 0;
  Watched<int> watched(
      "file", {path},
      [&] {
        ++reads;
        return next;
      },
      &log_);
  ASSERT_TRUE(watched.Start().ok());
  next = ConfigError("no permission");
  std::ofstream(path) << "longer";
  watched.Look();
  EXPECT_FALSE(watched.is_valid());
  EXPECT_EQ(*watched.Get(), 1);
  watched.Look();
  EXPECT_EQ(reads, 3);
  next = std::make_shared<int>(2);
  watched.Look();
  EXPECT_TRUE(watched.is_valid());
  EXPECT_EQ(*watched.Get(), 2);
  // A right one is read once.
  watched.Look();
  EXPECT_EQ(reads, 4);
}

TEST_F(AccessTest, AChangeWhileAFileIsReadIsSeen) {
  const std::string path = folder_.File("file");
  std::ofstream(path) << "one";
  std::string next;  // the file's content after the next read
  Watched<std::string> watched(
      "file", {path},
      [&] {
        std::string read;
        std::ifstream(path) >> read;
        if (!next.empty()) std::ofstream(path) << std::exchange(next, "");
        return std::make_shared<const std::string>(read);
      },
      &log_);
  ASSERT_TRUE(watched.Start().ok());
  std::ofstream(path) << "second";
  next = "the_third";
  watched.Look();
  EXPECT_EQ(*watched.Get(), "second");
  watched.Look();
  EXPECT_EQ(*watched.Get(), "the_third");
}

// A mistake is logged once while it lasts, and again when it returns.
TEST_F(AccessTest, AMistakeThatReturnsIsLoggedAgain) {
  std::ostringstream lines;
  RequestLog log(std::make_shared<spdlog::logger>(
      "", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines)));
  const std::string path = folder_.File("file");
  std::ofstream(path) << "one";
  absl::StatusOr<std::shared_ptr<const int>> next = std::make_shared<int>(1);
  Watched<int> watched(
      "file", {path}, [&] { return next; }, &log);
  ASSERT_TRUE(watched.Start().ok());
  const auto look = [&](const absl::StatusOr<std::shared_ptr<const int>>& value,
                        const std::string& content) {
    next = value;
    std::ofstream(path) << content;
    lines.str("");
    watched.Look();
    return lines.str();
  };
  EXPECT_THAT(look(ConfigError("no permission"), "longer"),
              HasSubstr("file_reload_failed"));
  EXPECT_EQ(look(ConfigError("no permission"), "longer"), "");
  EXPECT_THAT(look(std::make_shared<int>(2), "one"),
              HasSubstr("file_reloaded"));
  EXPECT_THAT(look(ConfigError("no permission"), "longer"),
              HasSubstr("file_reload_failed"));
}

// Only the handshake checks the dates: a connection may last longer.
TEST(IsSignedBy, ACertificateThatHasEndedSinceStaysSigned) {
  constexpr long kDay = Signer::kDay;
  const Signer signer;
  const std::string authority = signer.Sign("authority", "authority", kDay);
  const auto context = MakeTlsContext(authority, signer.Key(), authority);
  ASSERT_TRUE(context.ok()) << context.status();
  const auto is_signed = [&](const std::string& certificate) {
    return IsSignedBy(context->get(), certificate, "");
  };
  EXPECT_TRUE(is_signed(signer.Sign("client", "authority", kDay)));
  EXPECT_TRUE(is_signed(signer.Sign("client", "authority", -60)));
  EXPECT_FALSE(is_signed(signer.Sign("client", "another", kDay)));
  EXPECT_FALSE(is_signed(Signer().Sign("client", "authority", kDay)));
}

}  // namespace
}  // namespace counterweight::server
