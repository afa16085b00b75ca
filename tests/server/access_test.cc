// Tokens, and files that change while the server runs.
#include "server/access/access.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "openssl/bio.h"
#include "openssl/ssl.h"
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

TEST_F(AccessTest, AStampShowsEachChange) {
  const std::string path = folder_.File("file");
  std::ofstream(path) << "one";
  const auto set_time = [&](long nanoseconds) {
    const timespec times[2] = {{.tv_sec = 1'000'000, .tv_nsec = nanoseconds},
                               {.tv_sec = 1'000'000, .tv_nsec = nanoseconds}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  };
  set_time(0);
  const auto before = StampsOf({path});
  EXPECT_EQ(StampsOf({path}), before);
  set_time(1'000);
  EXPECT_NE(StampsOf({path}), before) << "within a second";
  std::ofstream(path) << "more";
  set_time(0);
  EXPECT_NE(StampsOf({path}), before) << "another size";
  // As `mv` and editors replace a file.
  std::ofstream(folder_.File("next")) << "two";
  std::filesystem::rename(folder_.File("next"), path);
  set_time(0);
  EXPECT_NE(StampsOf({path}), before) << "another file of the same size";
  std::filesystem::remove(path);
  EXPECT_NE(StampsOf({path}), before) << "none";
  EXPECT_EQ(StampsOf({path, path}).size(), 2U);
}

// The key of a pair may be replaced after the certificate.
TEST_F(AccessTest, EachOfSeveralFilesIsWatched) {
  const std::vector<std::string> paths = {folder_.File("1"), folder_.File("2"),
                                          folder_.File("3")};
  for (const std::string& path : paths) std::ofstream(path) << "one";
  int reads = 0;
  Watched<int> watched(
      "files", paths, [&] { return std::make_shared<int>(++reads); }, &log_);
  ASSERT_TRUE(watched.Start().ok());
  for (int i = 0; i < 3; ++i) {
    std::ofstream(paths[static_cast<size_t>(i)]) << "longer";
    watched.Look();
    EXPECT_EQ(reads, i + 2);
    EXPECT_EQ(*watched.Get(), i + 2);
  }
  watched.Look();
  EXPECT_EQ(reads, 4);
}

TEST_F(AccessTest, AFileThatWasWrongAtTheStartHasNoValue) {
  Watched<int> watched(
      "file", {folder_.File("none")},
      []() -> absl::StatusOr<std::shared_ptr<const int>> {
        return ConfigError("no such file");
      },
      &log_);
  EXPECT_EQ(watched.Start().message(), "no such file");
  EXPECT_EQ(watched.Get(), nullptr);
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
  EXPECT_THAT(look(ConfigError("no certificate"), "longer"),
              HasSubstr("no certificate"));
  EXPECT_THAT(look(std::make_shared<int>(2), "one"),
              HasSubstr("file_reloaded"));
  EXPECT_THAT(look(ConfigError("no permission"), "longer"),
              HasSubstr("file_reload_failed"));
}

// Only the handshake checks the dates: a connection may last longer.
// Recorded traffic stays secret when the key becomes known.
TEST(TlsContext, EveryCipherHasForwardSecrecy) {
  const Signer signer;
  const auto context =
      MakeTlsContext(signer.Sign("a", "a", Signer::kDay), signer.Key(), "");
  ASSERT_TRUE(context.ok()) << context.status();
  STACK_OF(SSL_CIPHER)* const ciphers = SSL_CTX_get_ciphers(context->get());
  EXPECT_GT(sk_SSL_CIPHER_num(ciphers), 0);
  for (int i = 0; i < sk_SSL_CIPHER_num(ciphers); ++i) {
    const SSL_CIPHER* const cipher = sk_SSL_CIPHER_value(ciphers, i);
    // TLS 1.3 leaves the exchange of keys open, and has none without it.
    const int exchange = SSL_CIPHER_get_kx_nid(cipher);
    EXPECT_TRUE(exchange == NID_kx_ecdhe || exchange == NID_kx_any)
        << SSL_CIPHER_get_name(cipher);
    EXPECT_TRUE(SSL_CIPHER_is_aead(cipher)) << SSL_CIPHER_get_name(cipher);
  }
}

using OwnedSsl = std::unique_ptr<SSL, decltype(&SSL_free)>;

// The server's view of a client with that certificate, after a handshake in
// memory.
PeerCertificate PeerWith(const std::string& certificate, const Signer& signer) {
  const std::string authority =
      signer.Sign("authority", "authority", Signer::kDay);
  const auto ours = MakeTlsContext(authority, signer.Key(), authority);
  EXPECT_TRUE(ours.ok()) << ours.status();
  const TemporaryFolder folder;
  std::ofstream(folder.File("certificate")) << certificate;
  std::ofstream(folder.File("key")) << signer.Key();
  const std::shared_ptr<SSL_CTX> theirs(SSL_CTX_new(TLS_client_method()),
                                        SSL_CTX_free);
  EXPECT_EQ(
      SSL_CTX_use_certificate_file(
          theirs.get(), folder.File("certificate").c_str(), SSL_FILETYPE_PEM),
      1);
  EXPECT_EQ(SSL_CTX_use_PrivateKey_file(
                theirs.get(), folder.File("key").c_str(), SSL_FILETYPE_PEM),
            1);
  const OwnedSsl server(SSL_new(ours->get()), SSL_free);
  const OwnedSsl client(SSL_new(theirs.get()), SSL_free);
  BIO* near = nullptr;
  BIO* far = nullptr;
  BIO_new_bio_pair(&near, 0, &far, 0);
  SSL_set_bio(server.get(), near, near);
  SSL_set_bio(client.get(), far, far);
  SSL_set_accept_state(server.get());
  SSL_set_connect_state(client.get());
  for (int turn = 0; turn < 10; ++turn) {
    SSL_do_handshake(client.get());
    SSL_do_handshake(server.get());
  }
  EXPECT_EQ(SSL_is_init_finished(server.get()), 1);
  return PeerCertificateOf(server.get());
}

TEST(TlsContext, NamesOfAClientAreOfEveryKind) {
  const Signer signer;
  const PeerCertificate peer =
      PeerWith(signer.Sign("client", "authority", Signer::kDay,
                           "DNS:trainer.example,URI:spiffe://cluster/trainer,"
                           "email:a@trainer.example,IP:10.0.0.7,IP:2001:db8::7,"
                           "RID:1.2.3.4"),
               signer);
  EXPECT_TRUE(peer.is_given);
  EXPECT_THAT(peer.names, testing::ElementsAre(
                              "trainer.example", "spiffe://cluster/trainer",
                              "a@trainer.example", "10.0.0.7", "2001:db8::7"));
  const PeerCertificate nameless =
      PeerWith(signer.Sign("client", "authority", Signer::kDay), signer);
  EXPECT_TRUE(nameless.is_given);
  EXPECT_THAT(nameless.names, testing::IsEmpty());
}

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
