// Splits a message into tensor data and the rest, before protobuf parses it.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_TENSOR_FIELDS_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_TENSOR_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/wire/wire_reader.h"

namespace counterweight::client {

// Splits a CorrectRequest or CorrectResponse with tensors in field
// `tensors_field`: `rest` receives the message without the data of its tensors,
// `data` the data of each tensor at its address, in order. False if the bytes
// are not a message.
bool TakeTensorData(wire::WireReader message, int tensors_field,
                    std::string* rest, std::vector<wire::WireReader>* data);

// Returns the head of a Tensor in field `field`: everything that precedes the
// `size` bytes of data.
std::string TensorHead(int field, int role, int dtype, size_t size);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_TENSOR_FIELDS_H_
