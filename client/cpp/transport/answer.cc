#include "client/cpp/transport/answer.h"

namespace counterweight::client {
namespace {

bool IsAskedFor(int index, v1::TensorRole role,
                const PreparedRequest& request) {
  if (request.outputs.empty()) {
    return OutputDType(role) != v1::D_TYPE_UNSPECIFIED;
  }
  const auto i = static_cast<size_t>(index);
  return i < request.outputs.size() && request.outputs[i].role == role;
}

}  // namespace

Status BrokenAnswer(const std::string& what) {
  return {.code = StatusCode::kInternal,
          .message = "cannot read the server's answer: " + what};
}

Status PlaceOutputs(const PreparedRequest& request, Response* response) {
  response->outputs.clear();
  response->output_bytes = 0;
  response->input_bytes = request.input_bytes;
  for (int i = 0; i < response->message.tensors_size(); ++i) {
    const v1::Tensor& tensor = response->message.tensors(i);
    if (!IsAskedFor(i, tensor.role(), request) ||
        tensor.dtype() != OutputDType(tensor.role()) ||
        response->Find(tensor.role()) != nullptr) {
      return BrokenAnswer("tensors[" + std::to_string(i) +
                          "] is not what was asked for");
    }
    OutputTensor output{.role = tensor.role(),
                        .dtype = tensor.dtype(),
                        .bytes = OutputBytes(tensor.role(), request)};
    for (const Output& place : request.outputs) {
      if (place.role != output.role) continue;
      output.data = static_cast<std::byte*>(place.data);
    }
    if (output.data == nullptr) {
      output.data = response->memory.Reserve(output.role, output.bytes);
    }
    response->output_bytes += output.bytes;
    response->outputs.push_back(output);
  }
  if (response->outputs.size() < request.outputs.size()) {
    return BrokenAnswer("outputs are missing");
  }
  return {};
}

}  // namespace counterweight::client
