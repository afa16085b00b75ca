// The files of TLS: what is refused, and what becomes of them.
#include "server/access/tls_files.h"

#include <ctime>
#include <fstream>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "openssl/ssl.h"
#include "server/access/client_trust.h"
#include "server/access/tls_context.h"
#include "tests/server/signer.h"
#include "tests/server/temporary_folder.h"

namespace counterweight::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr long kOneDay = Signer::kDay;

class TlsFilesTest : public testing::Test {
 protected:
  std::string File(const std::string& name, const std::string& content) const {
    std::ofstream(folder_.File(name)) << content;
    return folder_.File(name);
  }
  absl::StatusOr<std::shared_ptr<const TlsFiles>> Load(
      const std::string& certificate, const std::string& key,
      const std::string& client_ca = "") const {
    return LoadTlsFiles(
        {.certificate = File("certificate", certificate),
         .key = File("key", key),
         .client_ca = client_ca.empty() ? "" : File("ca", client_ca)});
  }
  std::string ErrorOf(const std::string& certificate, const std::string& key,
                      const std::string& client_ca = "") const {
    return std::string(Load(certificate, key, client_ca).status().message());
  }

  const TemporaryFolder folder_{};
  const Signer signer_{};
  const std::string own_ = signer_.Sign("own", "own", kOneDay);
};

// A prompt on the terminal would hold the server for good.
TEST_F(TlsFilesTest, AKeyWithAPasswordIsRefused) {
  for (const char* const password : {"secret", " "}) {
    EXPECT_THAT(ErrorOf(own_, signer_.Key(password)),
                AllOf(StartsWith("--tls_key="),
                      HasSubstr("no private key in PEM that opens without a "
                                "password")));
  }
  EXPECT_TRUE(Load(own_, signer_.Key()).ok());
}

// After the first block too, of either file.
TEST_F(TlsFilesTest, ADamagedCertificateIsNamed) {
  std::string damaged = own_;
  damaged.replace(damaged.find('\n') + 20, 4, "!!!!");
  for (const std::string& text : {damaged, own_ + damaged}) {
    EXPECT_THAT(ErrorOf(text, signer_.Key()),
                AllOf(StartsWith("--tls_certificate="),
                      HasSubstr("a certificate in it is damaged")));
    EXPECT_THAT(ErrorOf(own_, signer_.Key(), text),
                AllOf(StartsWith("--tls_client_ca="),
                      HasSubstr("a certificate in it is damaged")));
  }
}

TEST_F(TlsFilesTest, ACertificateOfTomorrowIsRefusedToday) {
  const std::string tomorrow = signer_.SignFrom("own", kOneDay);
  for (const std::string& chain :
       {tomorrow, own_ + tomorrow, tomorrow + own_}) {
    EXPECT_THAT(ErrorOf(chain, signer_.Key()),
                HasSubstr("its certificate is not valid before 20"));
  }
  EXPECT_TRUE(Load(signer_.SignFrom("own", -60), signer_.Key()).ok());
}

TEST_F(TlsFilesTest, AnExpiredCertificateIsRefusedWhereverItIs) {
  const std::string late = signer_.Sign("own", "own", -60);
  for (const std::string& chain : {late, own_ + late, late + own_}) {
    EXPECT_THAT(ErrorOf(chain, signer_.Key()),
                HasSubstr("its certificate expired at 20"));
  }
}

TEST_F(TlsFilesTest, TheExpiryIsInSecondsAndThatOfTheFirstToExpire) {
  const auto now = static_cast<double>(std::time(nullptr));
  const std::string hour = signer_.Sign("other", "other", 3600);
  for (const std::string& chain : {own_ + hour, hour + own_}) {
    const auto files = Load(chain, signer_.Key());
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_NEAR(static_cast<double>((*files)->expiry_unix_s), now + 3600, 600);
  }
}

TEST_F(TlsFilesTest, OneAuthorityThatHasNotExpiredIsEnough) {
  const std::string late = signer_.Sign("late", "late", -60);
  EXPECT_EQ(ErrorOf(own_, signer_.Key(), late + own_), "");
  EXPECT_EQ(ErrorOf(own_, signer_.Key(), own_ + late), "");
  EXPECT_THAT(ErrorOf(own_, signer_.Key(), late + late),
              AllOf(StartsWith("--tls_client_ca="),
                    HasSubstr("all of its certificates have expired")));
  EXPECT_THAT(ErrorOf(own_, signer_.Key(), "no PEM\n"),
              HasSubstr("it has no certificate in PEM"));
}

TEST_F(TlsFilesTest, ClientsShowCertificatesOnlyToThoseWhoWantThem) {
  const auto plain = Load(own_, signer_.Key());
  const auto mutual = Load(own_, signer_.Key(), own_);
  ASSERT_TRUE(plain.ok() && mutual.ok());
  EXPECT_EQ(SSL_CTX_get_verify_mode((*plain)->context.get()), SSL_VERIFY_NONE);
  // Without SSL_VERIFY_FAIL_IF_NO_PEER_CERT: probes have none.
  EXPECT_EQ(SSL_CTX_get_verify_mode((*mutual)->context.get()), SSL_VERIFY_PEER);
  EXPECT_EQ((*mutual)->client_ca, own_);
  EXPECT_EQ((*mutual)->certificate, own_);
  EXPECT_EQ((*mutual)->key, signer_.Key());
}

// A client picks its certificate by the names of all authorities.
TEST_F(TlsFilesTest, EachAuthorityIsOffered) {
  const Signer other;
  const auto files =
      Load(own_, signer_.Key(), own_ + other.Sign("other", "other", kOneDay));
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(
      sk_X509_NAME_num(SSL_CTX_get_client_CA_list((*files)->context.get())), 2);
  EXPECT_TRUE(IsSignedBy((*files)->context.get(),
                         other.Sign("client", "other", kOneDay), ""));
  EXPECT_TRUE(IsSignedBy((*files)->context.get(),
                         signer_.Sign("client", "own", kOneDay), ""));
}

TEST_F(TlsFilesTest, OldVersionsAndResumedSessionsAreOff) {
  const auto files = Load(own_, signer_.Key());
  ASSERT_TRUE(files.ok()) << files.status();
  SSL_CTX* const context = (*files)->context.get();
  EXPECT_EQ(SSL_CTX_get_min_proto_version(context), TLS1_2_VERSION);
  EXPECT_EQ(SSL_CTX_get_max_proto_version(context), 0) << "the newest";
  EXPECT_EQ(SSL_CTX_get_session_cache_mode(context), SSL_SESS_CACHE_OFF);
  EXPECT_EQ(SSL_CTX_get_num_tickets(context), 0U);
  for (const uint64_t option :
       {SSL_OP_NO_TICKET, SSL_OP_NO_COMPRESSION, SSL_OP_NO_RENEGOTIATION}) {
    EXPECT_NE(SSL_CTX_get_options(context) & option, 0U) << option;
  }
}

class ClientChainTest : public TlsFilesTest {
 protected:
  std::shared_ptr<const TlsFiles> Trusting(const std::string& authorities) {
    return Load(own_, signer_.Key(), authorities).value();
  }

  const Signer root_{};
  const Signer between_{};
  const std::string root_certificate_ =
      root_.SignAuthority(root_, "root", "root");
  const std::string between_certificate_ =
      root_.SignAuthority(between_, "between", "root");
  const std::string client_ = between_.Sign("client", "between", kOneDay);
};

TEST_F(ClientChainTest, AnAuthorityMaySignThroughOthers) {
  const auto files = Trusting(root_certificate_);
  const auto is_signed = [&](const std::string& chain) {
    return IsSignedBy(files->context.get(), client_, chain);
  };
  EXPECT_TRUE(is_signed(between_certificate_));
  EXPECT_TRUE(is_signed(own_ + between_certificate_));
  EXPECT_FALSE(is_signed(""));
  EXPECT_FALSE(is_signed(own_));
  EXPECT_FALSE(IsSignedBy(files->context.get(), "", between_certificate_));
}

// One that another signed is an authority all the same.
TEST_F(ClientChainTest, AnAuthorityNeedNotBeARoot) {
  const auto files = Trusting(between_certificate_);
  EXPECT_TRUE(IsSignedBy(files->context.get(), client_, ""));
  EXPECT_FALSE(IsSignedBy(files->context.get(),
                          root_.Sign("client", "root", kOneDay), ""));
}

TEST_F(ClientChainTest, EachChainOfACertificateIsJudgedByItself) {
  ClientTrust trust;
  const auto before = Trusting(own_);
  const auto after = Trusting(root_certificate_);
  ASSERT_TRUE(trust.Trusts(before, client_, "")) << "the handshake's files";
  for (int i = 0; i < 2; ++i) {  // the second time from what it remembers
    EXPECT_FALSE(trust.Trusts(after, client_, "")) << i;
    EXPECT_TRUE(trust.Trusts(after, client_, between_certificate_)) << i;
    EXPECT_FALSE(trust.Trusts(after, own_, between_certificate_)) << i;
  }
}

TEST_F(ClientChainTest, ManyClientsAreEachJudgedByThemselves) {
  ClientTrust trust;
  trust.Trusts(Trusting(own_), client_, "");
  const auto files = Trusting(root_certificate_);
  // More answers than are remembered.
  for (size_t i = 0; i <= ClientTrust::kMaxAnswers; ++i) {
    ASSERT_FALSE(trust.Trusts(files, "no certificate", std::to_string(i))) << i;
  }
  EXPECT_TRUE(trust.Trusts(files, client_, between_certificate_));
  EXPECT_FALSE(trust.Trusts(files, client_, ""));
}

}  // namespace
}  // namespace counterweight::server
