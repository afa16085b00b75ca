// A call of CorrectStream.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_STREAM_CALL_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_STREAM_CALL_H_

#include <cstddef>

#include "client/cpp/options.h"
#include "client/cpp/response.h"
#include "client/cpp/transport/attempt.h"
#include "client/cpp/transport/prepared_request.h"

namespace counterweight::client {

// Waits for the admission before it sends chunks. A chunk has at most
// `chunk_bytes` of data; 0: the server's preference. Reports every chunk but
// the last to `progress`, unless null; the answer is the report of the last
// one.
Outcome CorrectStream(const Endpoint& endpoint, const PreparedRequest& request,
                      size_t chunk_bytes, const Progress& progress,
                      Attempt* attempt, Response* response);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_STREAM_CALL_H_
