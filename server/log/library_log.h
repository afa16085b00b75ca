// The messages of gRPC, protobuf and abseil, in our log.
#ifndef COUNTERWEIGHT_SERVER_LOG_LIBRARY_LOG_H_
#define COUNTERWEIGHT_SERVER_LOG_LIBRARY_LOG_H_

#include "server/log/request_log.h"

namespace counterweight::server {

// Sends all further messages of these libraries to `log`, which must live as
// long as the process. gRPC's errors become warnings; everything else,
// protobuf's messages about strings that are not UTF-8 for instance, has level
// debug. With libraries that log through abseil the message of an abort has
// level error. Not thread-safe.
void LogLibrariesTo(RequestLog* log);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_LOG_LIBRARY_LOG_H_
