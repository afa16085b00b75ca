#include "server/access/tls_files.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <string_view>
#include <vector>

#include "openssl/bio.h"
#include "openssl/err.h"
#include "openssl/evp.h"
#include "openssl/pem.h"
#include "openssl/x509.h"
#include "server/small_file.h"
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

// OpenSSL would ask on the terminal.
int NoPassword(char* /*buffer*/, int /*size*/, int /*writing*/,
               void* /*data*/) {
  return -1;
}

// False if a block that says that it is a certificate is none.
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

// Empty, or the end of a sentence.
std::string ReadChain(const std::string& text, std::vector<Certificate>* chain,
                      int64_t* expiry_unix_s) {
  if (!ReadCertificates(text, chain)) return "a certificate in it is damaged";
  if (chain->empty()) return "it has no certificate in PEM";
  const int64_t now = std::time(nullptr);
  int64_t begin = 0;
  *expiry_unix_s = std::numeric_limits<int64_t>::max();
  for (const Certificate& each : *chain) {
    begin = std::max(begin, UnixSeconds(X509_get0_notBefore(each.get())));
    *expiry_unix_s =
        std::min(*expiry_unix_s, UnixSeconds(X509_get0_notAfter(each.get())));
  }
  if (*expiry_unix_s <= now) {
    return "its certificate expired at " + Date(*expiry_unix_s);
  }
  if (begin > now) return "its certificate is not valid before " + Date(begin);
  return "";
}

std::string CheckKey(const std::string& text, const std::string& certificate,
                     X509* leaf) {
  const Bio bio = Memory(text);
  const Key key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr),
      EVP_PKEY_free);
  const bool matches = key && X509_check_private_key(leaf, key.get()) == 1;
  ERR_clear_error();
  if (!key) return "it has no private key in PEM that opens without a password";
  if (!matches) {
    return "it is not the key of --tls_certificate=" + certificate;
  }
  return "";
}

std::string CheckAuthorities(const std::string& text) {
  std::vector<Certificate> authorities;
  if (!ReadCertificates(text, &authorities)) {
    return "a certificate in it is damaged";
  }
  if (authorities.empty()) return "it has no certificate in PEM";
  const int64_t now = std::time(nullptr);
  const bool any_valid = std::any_of(
      authorities.begin(), authorities.end(), [&](const Certificate& each) {
        return UnixSeconds(X509_get0_notAfter(each.get())) > now;
      });
  return any_valid ? "" : "all of its certificates have expired";
}

}  // namespace

std::shared_ptr<const TlsFiles> LoadTlsFiles(const TlsPaths& paths,
                                             std::string* error) {
  auto files = std::make_shared<TlsFiles>();
  std::vector<Certificate> chain;
  const auto is_wrong = [&](std::string_view flag, const std::string& path,
                            const std::string& problem) {
    if (!problem.empty()) {
      *error = fmt::format("--{}={}: {}", flag, path, problem);
    }
    return !problem.empty();
  };
  std::string unread;
  ReadSmallFile(paths.certificate, &files->certificate, &unread);
  if (is_wrong("tls_certificate", paths.certificate,
               !unread.empty() ? unread
                               : ReadChain(files->certificate, &chain,
                                           &files->expiry_unix_s))) {
    return nullptr;
  }
  ReadSmallFile(paths.key, &files->key, &unread);
  if (is_wrong("tls_key", paths.key,
               !unread.empty()
                   ? unread
                   : CheckKey(files->key, paths.certificate, chain[0].get()))) {
    return nullptr;
  }
  if (paths.client_ca.empty()) return files;
  ReadSmallFile(paths.client_ca, &files->client_ca, &unread);
  if (is_wrong("tls_client_ca", paths.client_ca,
               !unread.empty() ? unread : CheckAuthorities(files->client_ca))) {
    return nullptr;
  }
  return files;
}

}  // namespace counterweight::server
