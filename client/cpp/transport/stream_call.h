// CorrectStream.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_STREAM_CALL_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_STREAM_CALL_H_

#include <cstddef>

#include "client/cpp/options.h"
#include "client/cpp/response.h"
#include "client/cpp/transport/attempt.h"
#include "client/cpp/transport/prepared_request.h"

namespace counterweight::client {

// Waits for the admission before any payload. `chunk_bytes` of data at most in
// a chunk; 0: as many as the server prefers. Tells `progress`, unless null, of
// every chunk but the last, whose end is the answer.
Outcome CorrectStream(const Endpoint& endpoint, const PreparedRequest& request,
                      size_t chunk_bytes, const Progress& progress,
                      Attempt* attempt, Response* response);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_STREAM_CALL_H_
