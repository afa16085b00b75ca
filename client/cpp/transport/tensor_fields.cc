#include "client/cpp/transport/tensor_fields.h"

#include "client/cpp/transport/wire_format.h"

namespace counterweight::client {
namespace {

// Removes every field `taken` from a message and passes its bytes to `take`.
template <typename Take>
bool Filter(WireReader message, uint32_t taken, std::string* rest,
            const Take& take) {
  while (!message.done()) {
    const WireReader begin = message;
    uint32_t field = 0;
    uint32_t type = 0;
    if (!message.ReadTag(&field, &type)) return false;
    if (field == taken && type == kLengthDelimited) {
      WireReader bytes;
      if (!message.ReadBytes(&bytes) || !take(bytes)) return false;
    } else {
      if (!message.SkipField(type)) return false;
      begin.AppendUpTo(message, rest);
    }
  }
  return true;
}

}  // namespace

bool TakeTensorData(WireReader message, uint32_t tensors_field,
                    std::string* rest, std::vector<WireReader>* data) {
  rest->clear();
  data->clear();
  return Filter(message, tensors_field, rest, [&](const WireReader& tensor) {
    data->emplace_back();
    std::string rest_of_tensor;
    const bool whole = Filter(tensor, kTensorData, &rest_of_tensor,
                              [&](const WireReader& bytes) {
                                data->back() = bytes;
                                return true;
                              });
    AppendHead(tensors_field, rest_of_tensor.size(), rest);
    rest->append(rest_of_tensor);
    return whole;
  });
}

}  // namespace counterweight::client
