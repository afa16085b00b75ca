// gRPC's reflection service: tools such as grpcurl read the contract there.
#ifndef COUNTERWEIGHT_SERVER_LISTEN_REFLECTION_H_
#define COUNTERWEIGHT_SERVER_LISTEN_REFLECTION_H_

#include "grpcpp/server_builder.h"

namespace counterweight::server {

// Sets whether the server that `builder` makes has the service. It is gRPC's
// own, with a thread for each open stream.
void SetReflection(bool enabled, grpc::ServerBuilder* builder);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_LISTEN_REFLECTION_H_
