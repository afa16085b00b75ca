// Splits a message into tensor data and the rest, before protobuf parses it.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_TENSOR_FIELDS_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_TENSOR_FIELDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/cpp/transport/wire_reader.h"

namespace counterweight::client {

// Splits a CorrectRequest or CorrectResponse whose tensors are in field
// `tensors_field`: `rest` receives the message without the data of its tensors,
// `data` the data of each tensor at its address, in order. False if the bytes
// are not a message.
bool TakeTensorData(WireReader message, uint32_t tensors_field,
                    std::string* rest, std::vector<WireReader>* data);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_TENSOR_FIELDS_H_
