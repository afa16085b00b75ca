// Protobuf's own messages, in our log.
#ifndef COUNTERWEIGHT_SERVER_PROTOBUF_LOG_H_
#define COUNTERWEIGHT_SERVER_PROTOBUF_LOG_H_

#include "server/request_log.h"

namespace counterweight::server {

// From now on what protobuf would print to stderr, about strings that are no
// UTF-8 for instance, goes to `log`, which must live as long as the process.
// Does nothing with protobuf versions that log through abseil.
void LogProtobufTo(RequestLog* log);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_PROTOBUF_LOG_H_
