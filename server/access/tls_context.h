// TLS of connections that gRPC does not serve: those of the metrics port.
#ifndef COUNTERWEIGHT_SERVER_ACCESS_TLS_CONTEXT_H_
#define COUNTERWEIGHT_SERVER_ACCESS_TLS_CONTEXT_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "openssl/ssl.h"

namespace counterweight::server {

// A context for TLS 1.2 and 1.3 with a certificate chain and its key, all in
// PEM. With `client_ca` clients must show a certificate: one of another
// authority ends the handshake, none at all is left to Access. Fails with the
// end of a sentence if OpenSSL refuses the certificate or the key, for instance
// because it is too short.
absl::StatusOr<std::shared_ptr<SSL_CTX>> MakeTlsContext(
    const std::string& certificate, const std::string& key,
    const std::string& client_ca);

// True if an authority that `context` trusts signed the certificate (PEM),
// directly or through those of `chain` (PEM, may be empty). Dates do not count.
bool IsSignedBy(SSL_CTX* context, std::string_view certificate,
                std::string_view chain);

// The subject alternative names in the peer's verified certificate: DNS names,
// URIs, mail addresses and IP addresses.
struct PeerCertificate {
  bool is_given = false;
  std::vector<std::string> names;
};
PeerCertificate PeerCertificateOf(const SSL* ssl);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ACCESS_TLS_CONTEXT_H_
