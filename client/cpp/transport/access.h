// The client's certificate and token.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_ACCESS_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_ACCESS_H_

#include <string>

#include "client/cpp/options.h"
#include "client/cpp/status.h"
#include "client/cpp/transport/attempt.h"
#include "grpcpp/client_context.h"

namespace counterweight::client {

// Returns kInvalidArgument, with the field's name, for a malformed `target`,
// options of TLS and tokens that exclude each other or do not fit it, and for
// unreadable files.
Status ValidateAccess(const std::string& target, const Options& options);

// Returns a new channel; sends nothing yet. It takes no proxy of the
// environment to this machine, to a list, or for a token without TLS.
Endpoint Connect(const std::string& target, const Options& options);

// Adds the token, if there is one, to a call. Returns kUnauthenticated if its
// file cannot be read now.
Status AddToken(const Options& options, grpc::ClientContext* context);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_ACCESS_H_
