// gRPC's calls of Access about connections and calls.
#ifndef COUNTERWEIGHT_SERVER_ACCESS_CREDENTIALS_H_
#define COUNTERWEIGHT_SERVER_ACCESS_CREDENTIALS_H_

#include <memory>

#include "grpcpp/security/server_credentials.h"
#include "server/access/access.h"

namespace counterweight::server {

// For connections without TLS: Unix sockets, and TCP where there is no
// certificate. Every call of every service is checked before its handler knows
// of it. *access outlives the gRPC server.
std::shared_ptr<grpc::ServerCredentials> PlainCredentials(Access* access);

// For TLS 1.2 and 1.3. Each handshake has the certificate of the moment;
// connections that are open keep theirs. REQUIRES: access->has_tls().
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(Access* access);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ACCESS_CREDENTIALS_H_
