// Who may call: certificates and tokens, and the text of a refusal.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/access/access.h"
#include "server/access/client_trust.h"
#include "server/log/report_pause.h"
#include "spdlog/logger.h"
#include "spdlog/sinks/ostream_sink.h"
#include "tests/server/signer.h"
#include "tests/server/temporary_folder.h"
#include "tests/testing/eventually.h"

namespace counterweight::server {
namespace {

using ::testing::HasSubstr;

constexpr char kOurToken[] = "known-token-0123456789";

class AuthorizationTest : public testing::Test {
 protected:
  // A path of a file with that content.
  std::string File(const std::string& name, const std::string& content) const {
    std::ofstream(folder_.File(name)) << content;
    return folder_.File(name);
  }
  Config TlsConfig() const {
    Config config;
    config.tls_certificate = File("certificate", certificate_);
    config.tls_key = File("key", signer_.Key());
    return config;
  }
  Config MutualConfig() const {
    Config config = TlsConfig();
    config.tls_client_ca = File("ca", certificate_);
    return config;
  }
  Config TokenConfig() const {
    Config config;
    config.tokens = File("tokens", TokenLine("known", kOurToken).value());
    return config;
  }
  std::unique_ptr<Access> Load(const Config& config) {
    auto access = Access::Load(config, &log_);
    EXPECT_TRUE(access.ok()) << access.status();
    return *std::move(access);
  }
  size_t LogLines() const {
    const std::string text = lines_.str();
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  const TemporaryFolder folder_;
  Signer signer_;
  const std::string certificate_ =
      signer_.Sign("authority", "authority", Signer::kDay);
  std::ostringstream lines_;
  RequestLog log_{std::make_shared<spdlog::logger>(
      "", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines_))};
};

TEST_F(AuthorizationTest, EverybodyMayCallWithoutTokensAndCertificates) {
  const auto access = Load({});
  EXPECT_FALSE(access->has_tls());
  EXPECT_FALSE(access->has_tokens());
  EXPECT_FALSE(access->wants_certificates());
  EXPECT_TRUE(access->Check({}).ok());
  EXPECT_EQ(access->TokenIn(std::string("Bearer ") + kOurToken), nullptr);
  EXPECT_EQ(access->refused(), 0);
}

TEST_F(AuthorizationTest, OnlyMutualTlsWantsCertificates) {
  const auto one_sided = Load(TlsConfig());
  EXPECT_TRUE(one_sided->has_tls());
  EXPECT_FALSE(one_sided->wants_certificates());
  EXPECT_TRUE(one_sided->Check({.is_tls = true}).ok());
  const auto mutual = Load(MutualConfig());
  EXPECT_TRUE(mutual->wants_certificates());
  const grpc::Status status = mutual->Check({.is_tls = true});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("--tls_client_ca"));
  EXPECT_TRUE(mutual->Check({.is_tls = true, .has_certificate = true}).ok());
  EXPECT_TRUE(mutual->Check({.is_tls = false}).ok()) << "a Unix socket";
}

TEST_F(AuthorizationTest, OneOfTheNamesIsEnoughAndHasNoCase) {
  Config config = MutualConfig();
  config.tls_client_names = {"trainer.example", "second.example"};
  const auto access = Load(config);
  const auto may_call = [&](std::vector<std::string_view> names) {
    return access
        ->Check({.is_tls = true, .has_certificate = true, .names = names})
        .ok();
  };
  EXPECT_TRUE(may_call({"trainer.example"}));
  EXPECT_TRUE(may_call({"another.example", "Second.EXAMPLE"}));
  EXPECT_TRUE(may_call({"second.example", "another.example"}));
  for (const std::string_view name :
       {"another.example", "trainer.example.evil", "evil.trainer.example",
        "trainer.exampl", "trainer_example", ""}) {
    EXPECT_FALSE(may_call({name})) << name;
  }
  EXPECT_FALSE(may_call({}));
  EXPECT_TRUE(access->Check({.is_tls = false}).ok()) << "a Unix socket";
  const grpc::Status status =
      access->Check({.is_tls = true, .has_certificate = true});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("--tls_client_names"));
}

TEST_F(AuthorizationTest, ATokenFollowsItsScheme) {
  const auto access = Load(TokenConfig());
  const std::string token = kOurToken;
  for (const std::string& right :
       {"Bearer " + token, "bearer " + token, "BEARER   " + token}) {
    EXPECT_TRUE(access->Check({.authorization = right}).ok()) << right;
    const auto found = access->TokenIn(right);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->name, "known");
  }
  for (const std::string& none :
       {std::string(), std::string("Bearer"), std::string("Bearer "),
        std::string("Bearer    "), token, "Basic  " + token, "Bearer" + token,
        "Bearex " + token}) {
    const grpc::Status status = access->Check({.authorization = none});
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << none;
    EXPECT_THAT(status.error_message(), HasSubstr("wants a token")) << none;
    EXPECT_EQ(access->TokenIn(none), nullptr) << none;
  }
  for (const std::string& other :
       {"Bearer " + token + "x", "Bearer " + token + " ",
        "Bearer " + token.substr(1)}) {
    const grpc::Status status = access->Check({.authorization = other});
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << other;
    EXPECT_THAT(status.error_message(), HasSubstr("none of this server's"));
    EXPECT_EQ(access->TokenIn(other), nullptr) << other;
  }
}

TEST_F(AuthorizationTest, RefusalsAreCountedAndLoggedOnce) {
  const auto access = Load(TokenConfig());
  EXPECT_TRUE(
      access->Check({.authorization = std::string("Bearer ") + kOurToken})
          .ok());
  EXPECT_EQ(access->refused(), 0);
  EXPECT_EQ(LogLines(), 0U);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(access->Check({}).ok());
  EXPECT_EQ(access->refused(), 3);
  EXPECT_EQ(LogLines(), 1U) << lines_.str();
  EXPECT_THAT(lines_.str(), HasSubstr("access_refused"));
  EXPECT_THAT(lines_.str(), HasSubstr("wants a token"));
}

TEST_F(AuthorizationTest, WrongFilesAreNamedBeforeAnythingStarts) {
  EXPECT_TRUE(Access::CheckFiles({}).ok());
  EXPECT_TRUE(Access::CheckFiles(MutualConfig()).ok());
  EXPECT_TRUE(Access::CheckFiles(TokenConfig()).ok());
  Config config = MutualConfig();
  config.tls_key = File("other_key", Signer().Key());
  config.tokens = TokenConfig().tokens;
  EXPECT_THAT(std::string(Access::CheckFiles(config).message()),
              HasSubstr("--tls_key"));
  EXPECT_FALSE(Access::Load(config, &log_).ok());
  config = MutualConfig();
  config.tokens = File("wrong_tokens", "known\n");
  EXPECT_THAT(std::string(Access::CheckFiles(config).message()),
              HasSubstr("--tokens"));
  EXPECT_FALSE(Access::Load(config, &log_).ok());
}

// Only a missing token is theirs: the connection is that of any client.
TEST_F(AuthorizationTest, ProbesNeedNoTokenButACertificate) {
  Config config = MutualConfig();
  config.tls_client_names = {"trainer.example"};
  config.tokens = TokenConfig().tokens;
  const auto access = Load(config);
  const auto judge = [&](const Access::Credentials& credentials) {
    return access->Check(credentials).error_code();
  };
  EXPECT_EQ(judge({.needs_token = false, .is_tls = true}),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(judge({.needs_token = false,
                   .is_tls = true,
                   .has_certificate = true,
                   .names = {"another.example"}}),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(judge({.authorization = "Bearer none-of-the-tokens",
                   .has_several = true,
                   .needs_token = false,
                   .is_tls = true,
                   .has_certificate = true,
                   .names = {"trainer.example"}}),
            grpc::StatusCode::OK);
  EXPECT_EQ(access->refused(), 2);
}

// Who has no right certificate learns nothing about tokens.
TEST_F(AuthorizationTest, TheCertificateIsJudgedBeforeTheToken) {
  Config config = MutualConfig();
  config.tls_client_names = {"trainer.example"};
  config.tokens = TokenConfig().tokens;
  const auto access = Load(config);
  const std::string bearer = std::string("Bearer ") + kOurToken;
  for (const std::string& sent : {std::string(), bearer}) {
    EXPECT_EQ(
        access->Check({.authorization = sent, .is_tls = true}).error_code(),
        grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_EQ(access
                  ->Check({.authorization = sent,
                           .is_tls = true,
                           .has_certificate = true,
                           .names = {"another.example"}})
                  .error_code(),
              grpc::StatusCode::PERMISSION_DENIED);
  }
  const Access::Credentials named = {
      .is_tls = true, .has_certificate = true, .names = {"trainer.example"}};
  EXPECT_EQ(access->Check(named).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  // A Unix socket has no certificate, and needs the token.
  EXPECT_EQ(access->Check({}).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(access->Check({.authorization = bearer}).ok());
}

TEST_F(AuthorizationTest, ATokenThatIsInUseOutlivesItsFile) {
  const auto access = Load(TokenConfig());
  const auto used = access->TokenIn(std::string("Bearer ") + kOurToken);
  ASSERT_NE(used, nullptr);
  const std::string next = "the-token-after-the-first";
  File("tokens", TokenLine("known", next).value() + " runs=a-*\n");
  const std::string bearer = "Bearer " + next;
  ASSERT_TRUE(Eventually([&] { return access->TokenIn(bearer) != nullptr; }));
  EXPECT_EQ(access->TokenIn(std::string("Bearer ") + kOurToken), nullptr);
  EXPECT_FALSE(access->TokenIn(bearer)->runs.Allow("b-1"));
  EXPECT_TRUE(access->is_token_file_valid());
  // The table of before belongs to the call that goes on.
  ASSERT_EQ(used.use_count(), 1);
  EXPECT_EQ(used->name, "known");
  EXPECT_TRUE(used->runs.Allow("b-1"));
}

// The other file's state is its own.
TEST_F(AuthorizationTest, AFileThatVanishesLeavesWhatWas) {
  Config config = MutualConfig();
  config.tokens = TokenConfig().tokens;
  const auto access = Load(config);
  const int64_t expiry = access->tls_expiry_unix_s();
  const std::string bearer = std::string("Bearer ") + kOurToken;
  ASSERT_TRUE(access->are_tls_files_valid());
  std::filesystem::remove(config.tls_client_ca);
  ASSERT_TRUE(Eventually([&] { return !access->are_tls_files_valid(); }));
  EXPECT_TRUE(access->is_token_file_valid());
  EXPECT_EQ(access->tls_expiry_unix_s(), expiry);
  EXPECT_TRUE(access->wants_certificates());
  EXPECT_FALSE(access->Check({.authorization = bearer, .is_tls = true}).ok());
  File("ca", certificate_);
  ASSERT_TRUE(Eventually([&] { return access->are_tls_files_valid(); }));
  std::filesystem::remove(config.tokens);
  ASSERT_TRUE(Eventually([&] { return !access->is_token_file_valid(); }));
  EXPECT_TRUE(access->are_tls_files_valid());
  EXPECT_TRUE(access->Check({.authorization = bearer}).ok());
}

// A client decides how often it is refused.
TEST(ReportPause, OneReportIsDueInTenSeconds) {
  using std::chrono::milliseconds;
  constexpr ReportPause::Time kBegin{std::chrono::hours(1)};
  ReportPause pause;
  EXPECT_TRUE(pause.IsDue(kBegin));
  EXPECT_FALSE(pause.IsDue(kBegin));
  EXPECT_FALSE(pause.IsDue(kBegin + milliseconds(9'999)));
  EXPECT_TRUE(pause.IsDue(kBegin + milliseconds(10'000)));
  EXPECT_FALSE(pause.IsDue(kBegin + milliseconds(19'999)));
  EXPECT_TRUE(pause.IsDue(kBegin + milliseconds(60'000)));
  EXPECT_FALSE(pause.IsDue(kBegin + milliseconds(69'999)));
  EXPECT_TRUE(pause.IsDue(kBegin + milliseconds(70'000)));
}

// Calls on connections that are older than the authorities.
TEST_F(AuthorizationTest, AnAuthorityThatLeavesTakesItsClients) {
  const auto files = [&](const std::string& name, const std::string& ca) {
    const Config config = TlsConfig();
    return LoadTlsFiles({.certificate = config.tls_certificate,
                         .key = config.tls_key,
                         .client_ca = File(name, ca)})
        .value();
  };
  const Signer other;
  const std::string other_ca = other.Sign("other", "other", Signer::kDay);
  const std::string ours = signer_.Sign("client", "authority", Signer::kDay);
  const std::string theirs = other.Sign("client", "other", Signer::kDay);
  const auto both = files("both", certificate_ + other_ca);
  const auto one = files("one", certificate_);
  ClientTrust trust;
  EXPECT_TRUE(trust.Trusts(both, ours, ""));
  EXPECT_TRUE(trust.Trusts(both, theirs, ""));
  for (int i = 0; i < 2; ++i) {  // the second time from what it remembers
    EXPECT_TRUE(trust.Trusts(one, ours, "")) << i;
    EXPECT_FALSE(trust.Trusts(one, theirs, "")) << i;
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(trust.Trusts(both, theirs, "")) << "it came back";
    EXPECT_TRUE(trust.Trusts(both, ours, "")) << i;
  }
  EXPECT_FALSE(trust.Trusts(one, theirs, ""));
}

}  // namespace
}  // namespace counterweight::server
