// Messages as bytes that can be compared.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_MESSAGE_BYTES_H_
#define COUNTERWEIGHT_SERVER_ENGINE_MESSAGE_BYTES_H_

#include <string>

#include "google/protobuf/message_lite.h"

namespace counterweight::server {

// Returns the message's bytes, equal for equal messages of one release of
// protobuf: SerializeAsString() writes the elements of a map in any order.
std::string MessageBytes(const google::protobuf::MessageLite& message);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_MESSAGE_BYTES_H_
