#include "server/access/tls_context.h"

#include <arpa/inet.h>

#include <array>
#include <optional>
#include <string_view>

#include "openssl/bio.h"
#include "openssl/err.h"
#include "openssl/pem.h"
#include "openssl/x509v3.h"
#include "server/base/config_error.h"

namespace counterweight::server {
namespace {

using ReadBio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using OwnedCertificate = std::unique_ptr<X509, decltype(&X509_free)>;
using OwnedKey = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using AlternativeNames =
    std::unique_ptr<GENERAL_NAMES, decltype(&GENERAL_NAMES_free)>;

ReadBio BioOf(std::string_view text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())),
          BIO_free};
}

OwnedCertificate NextCertificate(const ReadBio& bio) {
  return {PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), X509_free};
}

// OpenSSL's words about the oldest error; none is left for others to find.
std::string TakeError() {
  const char* const reason = ERR_reason_error_string(ERR_peek_error());
  std::string text = reason == nullptr ? "unknown error" : reason;
  ERR_clear_error();
  return text;
}

bool UseChain(SSL_CTX* context, const std::string& text) {
  const ReadBio bio = BioOf(text);
  OwnedCertificate certificate = NextCertificate(bio);
  if (!certificate ||
      SSL_CTX_use_certificate(context, certificate.get()) != 1) {
    return false;
  }
  while ((certificate = NextCertificate(bio))) {
    if (SSL_CTX_add0_chain_cert(context, certificate.get()) != 1) return false;
    static_cast<void>(certificate.release());
  }
  ERR_clear_error();  // the end of the file
  return true;
}

bool UseKey(SSL_CTX* context, const std::string& text) {
  const ReadBio bio = BioOf(text);
  // The empty password: OpenSSL would prompt on the terminal.
  std::array<char, 1> password{};
  const OwnedKey key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, password.data()),
      EVP_PKEY_free);
  return key && SSL_CTX_use_PrivateKey(context, key.get()) == 1;
}

bool TrustClients(SSL_CTX* context, const std::string& authorities) {
  // As gRPC: an authority may be one that another signed.
  X509_STORE_set_flags(SSL_CTX_get_cert_store(context),
                       X509_V_FLAG_PARTIAL_CHAIN);
  const ReadBio bio = BioOf(authorities);
  while (const OwnedCertificate authority = NextCertificate(bio)) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) !=
            1 ||
        SSL_CTX_add_client_CA(context, authority.get()) != 1) {
      return false;
    }
  }
  ERR_clear_error();
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  return true;
}

std::string_view TextOf(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<size_t>(ASN1_STRING_length(text))};
}

std::optional<std::string> NameOf(const GENERAL_NAME& name) {
  switch (name.type) {
    case GEN_DNS:
      return std::string(TextOf(name.d.dNSName));
    case GEN_URI:
      return std::string(TextOf(name.d.uniformResourceIdentifier));
    case GEN_EMAIL:
      return std::string(TextOf(name.d.rfc822Name));
    case GEN_IPADD: {
      const std::string_view bytes = TextOf(name.d.iPAddress);
      std::array<char, INET6_ADDRSTRLEN> text{};
      const int family = bytes.size() == sizeof(in_addr) ? AF_INET : AF_INET6;
      if (bytes.size() != sizeof(in_addr) && bytes.size() != sizeof(in6_addr)) {
        return std::nullopt;
      }
      inet_ntop(family, bytes.data(), text.data(), text.size());
      return text.data();
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<SSL_CTX>> MakeTlsContext(
    const std::string& certificate, const std::string& key,
    const std::string& client_ca) {
  ERR_clear_error();
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()),
                                   SSL_CTX_free);
  if (!context ||
      SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1 ||
      // The ciphers of TLS 1.2 with forward secrecy; TLS 1.3 has no other.
      SSL_CTX_set_cipher_list(context.get(), "ECDHE+AESGCM:ECDHE+CHACHA20") !=
          1 ||
      !UseChain(context.get(), certificate) || !UseKey(context.get(), key) ||
      (!client_ca.empty() && !TrustClients(context.get(), client_ca))) {
    return ConfigError("OpenSSL refuses it: " + TakeError());
  }
  // A scraper returns every few seconds: sessions to resume are not worth their
  // memory.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
                                         SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  return context;
}

bool IsSignedBy(SSL_CTX* context, std::string_view certificate,
                std::string_view chain) {
  const OwnedCertificate leaf = NextCertificate(BioOf(certificate));
  const std::unique_ptr<STACK_OF(X509), void (*)(STACK_OF(X509)*)> between(
      sk_X509_new_null(),
      [](STACK_OF(X509) * all) { sk_X509_pop_free(all, X509_free); });
  const std::unique_ptr<X509_STORE_CTX, decltype(&X509_STORE_CTX_free)> check(
      X509_STORE_CTX_new(), X509_STORE_CTX_free);
  bool is_signed = false;
  if (leaf && between && check) {
    const ReadBio bio = BioOf(chain);
    while (OwnedCertificate each = NextCertificate(bio)) {
      if (sk_X509_push(between.get(), each.get()) > 0) {
        static_cast<void>(each.release());
      }
    }
    if (X509_STORE_CTX_init(check.get(), SSL_CTX_get_cert_store(context),
                            leaf.get(), between.get()) == 1) {
      X509_STORE_CTX_set_flags(check.get(), X509_V_FLAG_NO_CHECK_TIME);
      is_signed = X509_verify_cert(check.get()) == 1;
    }
  }
  ERR_clear_error();
  return is_signed;
}

PeerCertificate PeerCertificateOf(const SSL* ssl) {
  PeerCertificate peer;
  const OwnedCertificate certificate(SSL_get1_peer_certificate(ssl), X509_free);
  if (!certificate) return peer;
  peer.is_given = true;
  const AlternativeNames names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(
          certificate.get(), NID_subject_alt_name, nullptr, nullptr)),
      GENERAL_NAMES_free);
  if (!names) return peer;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    std::optional<std::string> name =
        NameOf(*sk_GENERAL_NAME_value(names.get(), i));
    if (name) peer.names.push_back(*std::move(name));
  }
  return peer;
}

}  // namespace counterweight::server
