// Limits of one gRPC connection, and when the server closes one.
#ifndef COUNTERWEIGHT_SERVER_LISTEN_CONNECTION_OPTIONS_H_
#define COUNTERWEIGHT_SERVER_LISTEN_CONNECTION_OPTIONS_H_

#include "grpcpp/server_builder.h"
#include "server/config/config.h"

namespace counterweight::server {

// Sets age, streams, metadata and pings of all connections.
void SetConnectionOptions(const Config& config, grpc::ServerBuilder* builder);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_LISTEN_CONNECTION_OPTIONS_H_
