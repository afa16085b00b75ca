#include "client/cpp/transport/tensor_fields.h"

#include "counterweight/v1/correction_service.pb.h"
#include "proto/wire/wire_format.h"

namespace counterweight::client {
namespace {

// Removes every field `taken` from a message and passes its bytes to `take`.
template <typename Take>
bool Filter(wire::WireReader message, int taken, std::string* rest,
            const Take& take) {
  while (!message.done()) {
    const wire::WireReader begin = message;
    int field = 0;
    uint32_t type = 0;
    if (!message.ReadTag(&field, &type)) return false;
    if (field == taken && type == wire::kLengthDelimited) {
      wire::WireReader bytes;
      if (!message.ReadBytes(&bytes) || !take(bytes)) return false;
    } else {
      if (!message.SkipField(type)) return false;
      begin.AppendUpTo(message, rest);
    }
  }
  return true;
}

}  // namespace

bool TakeTensorData(wire::WireReader message, int tensors_field,
                    std::string* rest, std::vector<wire::WireReader>* data) {
  rest->clear();
  data->clear();
  return Filter(
      message, tensors_field, rest, [&](const wire::WireReader& tensor) {
        data->emplace_back();
        std::string rest_of_tensor;
        const bool whole =
            Filter(tensor, v1::Tensor::kDataFieldNumber, &rest_of_tensor,
                   [&](const wire::WireReader& bytes) {
                     data->back() = bytes;
                     return true;
                   });
        wire::AppendHead(tensors_field, rest_of_tensor.size(), rest);
        rest->append(rest_of_tensor);
        return whole;
      });
}

std::string TensorHead(int field, int role, int dtype, size_t size) {
  std::string tensor;
  wire::AppendInteger(v1::Tensor::kRoleFieldNumber, static_cast<uint64_t>(role),
                      &tensor);
  wire::AppendInteger(v1::Tensor::kDtypeFieldNumber,
                      static_cast<uint64_t>(dtype), &tensor);
  wire::AppendHead(v1::Tensor::kDataFieldNumber, size, &tensor);
  return wire::Wrap(field, tensor, size);
}

}  // namespace counterweight::client
