// Who may call: certificates and tokens, and what a refusal says.
#include <algorithm>
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
#include "spdlog/logger.h"
#include "spdlog/sinks/ostream_sink.h"
#include "tests/server/signer.h"
#include "tests/server/temporary_folder.h"

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
