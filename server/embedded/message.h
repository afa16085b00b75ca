// Messages in the caller's format: protobuf's bytes, or JSON.
#ifndef COUNTERWEIGHT_SERVER_EMBEDDED_MESSAGE_H_
#define COUNTERWEIGHT_SERVER_EMBEDDED_MESSAGE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "counterweight/v1/correction_service.pb.h"
#include "google/protobuf/message.h"
#include "server/embedded/failure.h"

namespace counterweight::embedded {

// `format` is CW_PROTOBUF or CW_JSON. Refuses the requests that a server
// refuses before it decodes: bytes that do not parse, or more objects than the
// limits allow.
Failure ReadRequest(std::string_view text, int32_t format,
                    int64_t max_sequences, v1::CorrectRequest* request);

Failure ReadMerge(std::string_view text, int32_t format,
                  v1::MergeSumsRequest* request);

Failure ReadDeclaration(std::string_view text, int32_t format,
                        v1::DeclareRunRequest* request);

Failure ReadGroups(std::string_view text, int32_t format,
                   v1::GroupAdvantagesRequest* request);

// Writes the message in `format`.
Failure Write(const google::protobuf::Message& message, int32_t format,
              std::string* text);

}  // namespace counterweight::embedded

#endif  // COUNTERWEIGHT_SERVER_EMBEDDED_MESSAGE_H_
