// The server's certificate, its key, and whom it trusts.
#ifndef COUNTERWEIGHT_SERVER_ACCESS_TLS_FILES_H_
#define COUNTERWEIGHT_SERVER_ACCESS_TLS_FILES_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "openssl/types.h"

namespace counterweight::server {

// All in PEM.
struct TlsPaths {
  std::string certificate;  // and those of authorities between it and the root
  std::string key;          // without a password
  std::string client_ca;    // empty: clients need no certificate
};

// The checked content of the files.
struct TlsFiles {
  std::string certificate;
  std::string key;
  std::string client_ca;
  int64_t expiry_unix_s = 0;  // of the certificate that ends first
  // Made of them, for connections that gRPC does not serve.
  std::shared_ptr<SSL_CTX> context;
};

// Fails with a sentence that names the flag and the file if a file is
// unreadable or no PEM, if the key belongs to another certificate, if a
// certificate has expired or is not valid yet, or if OpenSSL refuses them.
absl::StatusOr<std::shared_ptr<const TlsFiles>> LoadTlsFiles(
    const TlsPaths& paths);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ACCESS_TLS_FILES_H_
