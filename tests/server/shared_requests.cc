#include "tests/server/shared_requests.h"

#include <cstring>

namespace counterweight::server {

void SetRange(const std::string& handle, uint64_t offset, uint64_t length,
              v1::Tensor* tensor) {
  tensor->clear_data();
  tensor->mutable_shared_memory()->set_handle(handle);
  tensor->mutable_shared_memory()->set_offset(offset);
  tensor->mutable_shared_memory()->set_length(length);
}

v1::CorrectRequest SharedRequest(const std::string& inputs, void* memory,
                                 const std::string& outputs) {
  v1::CorrectRequest request = SmallRequest();
  uint64_t next = 0;
  for (v1::Tensor& tensor : *request.mutable_tensors()) {
    const std::string data = tensor.data();
    std::memcpy(static_cast<char*>(memory) + next, data.data(), data.size());
    SetRange(inputs, next, data.size(), &tensor);
    next += 64;
  }
  v1::Tensor* const weights = request.add_destinations();
  weights->set_role(v1::TENSOR_ROLE_WEIGHTS);
  weights->set_dtype(v1::D_TYPE_F32);
  SetRange(outputs, 0, 24, weights);
  v1::Tensor* const keep_mask = request.add_destinations();
  keep_mask->set_role(v1::TENSOR_ROLE_KEEP_MASK);
  keep_mask->set_dtype(v1::D_TYPE_U8);
  SetRange(outputs, 64, 6, keep_mask);
  return request;
}

std::vector<std::string> WrongFields(const v1::CorrectRequest& request,
                                     RunningServer* running) {
  const grpc::Status status = running->Correct(request);
  std::vector<std::string> fields;
  if (status.ok()) return fields;
  const auto bad_request = DetailOf<google::rpc::BadRequest>(status);
  for (const auto& violation : bad_request.field_violations()) {
    fields.push_back(violation.field());
  }
  return fields;
}

}  // namespace counterweight::server
