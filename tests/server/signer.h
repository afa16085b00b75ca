// Certificates for tests.
#ifndef COUNTERWEIGHT_TESTS_SERVER_SIGNER_H_
#define COUNTERWEIGHT_TESTS_SERVER_SIGNER_H_

#include <cstring>
#include <memory>
#include <string>

#include "openssl/bio.h"
#include "openssl/evp.h"
#include "openssl/pem.h"
#include "openssl/x509.h"
#include "openssl/x509v3.h"

namespace counterweight::server {

// Signs certificates, which may sign others.
class Signer {
 public:
  // Returns PEM that is valid until `seconds` from now, which may be negative.
  // `names` are subject alternative ones as OpenSSL's configuration has them,
  // "DNS:a.example,URI:spiffe://a/b"; without them it is of version 1.
  std::string Sign(const char* name, const char* issuer, long seconds,
                   const char* names = nullptr) const {
    return Make(name, issuer, -kDay, seconds, key_.get(), NID_subject_alt_name,
                names);
  }
  // The same, valid for a day that begins `seconds` from now.
  std::string SignFrom(const char* name, long seconds) const {
    return Make(name, name, seconds, seconds + kDay, key_.get(), NID_undef,
                nullptr);
  }
  // A certificate of `other`'s key, which may sign others with it.
  std::string SignAuthority(const Signer& other, const char* name,
                            const char* issuer) const {
    return Make(name, issuer, -kDay, kDay, other.key_.get(),
                NID_basic_constraints, "critical,CA:TRUE");
  }
  std::string Key() const { return Key(nullptr); }
  std::string Key(const char* password) const {
    const Bio bio(BIO_new(BIO_s_mem()), BIO_free);
    PEM_write_bio_PKCS8PrivateKey(
        bio.get(), key_.get(),
        password == nullptr ? nullptr : EVP_aes_128_cbc(), password,
        password == nullptr ? 0 : static_cast<int>(std::strlen(password)),
        nullptr, nullptr);
    return TextOf(bio);
  }

  static constexpr long kDay = 86400;

 private:
  using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;

  // With one extension if `extension` is not null.
  std::string Make(const char* name, const char* issuer, long begin, long end,
                   EVP_PKEY* subject, int kind, const char* extension) const {
    const std::unique_ptr<X509, decltype(&X509_free)> made(X509_new(),
                                                           X509_free);
    SetName(name, X509_get_subject_name(made.get()));
    SetName(issuer, X509_get_issuer_name(made.get()));
    X509_gmtime_adj(X509_getm_notBefore(made.get()), begin);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), end);
    X509_set_pubkey(made.get(), subject);
    if (extension != nullptr) {
      X509_set_version(made.get(), X509_VERSION_3);
      const std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)>
          added(X509V3_EXT_conf_nid(nullptr, nullptr, kind, extension),
                X509_EXTENSION_free);
      X509_add_ext(made.get(), added.get(), -1);
    }
    X509_sign(made.get(), key_.get(), EVP_sha256());
    const Bio bio(BIO_new(BIO_s_mem()), BIO_free);
    PEM_write_bio_X509(bio.get(), made.get());
    return TextOf(bio);
  }
  static void SetName(const char* name, X509_NAME* to) {
    X509_NAME_add_entry_by_txt(to, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name), -1,
                               -1, 0);
  }
  static std::string TextOf(const Bio& bio) {
    char* text = nullptr;
    const long size = BIO_get_mem_data(bio.get(), &text);
    return {text, static_cast<size_t>(size)};
  }

  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key_{
      EVP_EC_gen("P-256"), EVP_PKEY_free};
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_SIGNER_H_
