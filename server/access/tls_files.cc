#include "server/access/tls_files.h"

#include <algorithm>
#include <ctime>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "openssl/bio.h"
#include "openssl/err.h"
#include "openssl/evp.h"
#include "openssl/pem.h"
#include "openssl/x509.h"
#include "server/access/tls_context.h"
#include "server/base/config_error.h"
#include "server/base/small_file.h"
#include "spdlog/fmt/chrono.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

Bio Memory(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())),
          BIO_free};
}

// OpenSSL would prompt on the terminal.
int NoPassword(char* /*buffer*/, int /*size*/, int /*writing*/,
               void* /*data*/) {
  return -1;
}

// False if a block with a certificate's label is none.
bool ReadCertificates(const std::string& text,
                      std::vector<Certificate>* certificates) {
  const Bio bio = Memory(text);
  ERR_clear_error();
  while (X509* const found =
             PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr)) {
    certificates->emplace_back(found, X509_free);
  }
  const bool at_end =
      ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  return at_end;
}

int64_t UnixSeconds(const ASN1_TIME* time) {
  tm broken_down{};
  if (ASN1_TIME_to_tm(time, &broken_down) != 1) return 0;
  return timegm(&broken_down);
}

std::string Date(int64_t unix_s) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(unix_s));
}

// The message is the end of a sentence, as that of the next two.
absl::Status ReadChain(const std::string& text, std::vector<Certificate>* chain,
                       int64_t* expiry_unix_s) {
  if (!ReadCertificates(text, chain)) {
    return ConfigError("a certificate in it is damaged");
  }
  if (chain->empty()) return ConfigError("it has no certificate in PEM");
  const int64_t now = std::time(nullptr);
  int64_t begin = 0;
  *expiry_unix_s = std::numeric_limits<int64_t>::max();
  for (const Certificate& each : *chain) {
    begin = std::max(begin, UnixSeconds(X509_get0_notBefore(each.get())));
    *expiry_unix_s =
        std::min(*expiry_unix_s, UnixSeconds(X509_get0_notAfter(each.get())));
  }
  if (*expiry_unix_s <= now) {
    return ConfigError("its certificate expired at " + Date(*expiry_unix_s));
  }
  if (begin > now) {
    return ConfigError("its certificate is not valid before " + Date(begin));
  }
  return absl::OkStatus();
}

absl::Status CheckKey(const std::string& text, const std::string& certificate,
                      X509* leaf) {
  const Bio bio = Memory(text);
  const Key key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr),
      EVP_PKEY_free);
  const bool matches = key && X509_check_private_key(leaf, key.get()) == 1;
  ERR_clear_error();
  if (!key) {
    return ConfigError(
        "it has no private key in PEM that opens without a password");
  }
  if (!matches) {
    return ConfigError("it is not the key of --tls_certificate=" + certificate);
  }
  return absl::OkStatus();
}

absl::Status CheckAuthorities(const std::string& text) {
  std::vector<Certificate> authorities;
  if (!ReadCertificates(text, &authorities)) {
    return ConfigError("a certificate in it is damaged");
  }
  if (authorities.empty()) return ConfigError("it has no certificate in PEM");
  const int64_t now = std::time(nullptr);
  const bool any_valid = std::any_of(
      authorities.begin(), authorities.end(), [&](const Certificate& each) {
        return UnixSeconds(X509_get0_notAfter(each.get())) > now;
      });
  return any_valid ? absl::OkStatus()
                   : ConfigError("all of its certificates have expired");
}

// Reads the file of `flag` into *text, and checks it.
absl::Status ReadChecked(
    std::string_view flag, const std::string& path, std::string* text,
    const std::function<absl::Status(const std::string& text)>& check) {
  absl::StatusOr<std::string> read = ReadSmallFile(path);
  const absl::Status status = read.ok() ? check(*read) : read.status();
  if (!status.ok()) {
    return ConfigError(
        fmt::format("--{}={}: {}", flag, path, MessageOf(status)));
  }
  *text = *std::move(read);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TlsFiles>> LoadTlsFiles(
    const TlsPaths& paths) {
  auto files = std::make_shared<TlsFiles>();
  std::vector<Certificate> chain;
  absl::Status status =
      ReadChecked("tls_certificate", paths.certificate, &files->certificate,
                  [&](const std::string& text) {
                    return ReadChain(text, &chain, &files->expiry_unix_s);
                  });
  if (!status.ok()) return status;
  status = ReadChecked(
      "tls_key", paths.key, &files->key, [&](const std::string& text) {
        return CheckKey(text, paths.certificate, chain[0].get());
      });
  if (!status.ok()) return status;
  if (!paths.client_ca.empty()) {
    status = ReadChecked("tls_client_ca", paths.client_ca, &files->client_ca,
                         CheckAuthorities);
    if (!status.ok()) return status;
  }
  absl::StatusOr<std::shared_ptr<SSL_CTX>> context =
      MakeTlsContext(files->certificate, files->key, files->client_ca);
  if (!context.ok()) {
    return ConfigError(fmt::format("--tls_certificate={}: {}",
                                   paths.certificate,
                                   MessageOf(context.status())));
  }
  files->context = *std::move(context);
  return std::shared_ptr<const TlsFiles>(std::move(files));
}

}  // namespace counterweight::server
