#include "client/cpp/bench/echo_batch.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "client/cpp/transport/prepared_request.h"

namespace counterweight::bench {

std::shared_ptr<BufferPool::Buffer> BufferPool::Take(size_t bytes) {
  Buffer buffer;
  {
    const std::lock_guard lock(state_->mutex);
    const auto found =
        std::find_if(state_->idle.begin(), state_->idle.end(),
                     [&](const Buffer& idle) { return idle.bytes >= bytes; });
    if (found != state_->idle.end()) {
      buffer = std::move(*found);
      state_->idle.erase(found);
    }
  }
  if (buffer.data == nullptr) {
    buffer.data.reset(new (std::nothrow) std::byte[bytes]);
    if (buffer.data == nullptr) return nullptr;
    buffer.bytes = bytes;
  }
  return {new Buffer(std::move(buffer)), [state = state_](Buffer* used) {
            {
              const std::lock_guard lock(state->mutex);
              state->idle.push_back(std::move(*used));
            }
            delete used;
          }};
}

std::string EchoBatch::Begin(const v1::CorrectRequest& header,
                             BufferPool* pool) {
  client::PreparedRequest sizes;
  if (!client::ReadLayout(header.layout(), &sizes)) return "no layout";
  if (header.outputs_size() == 0) return "the outputs must be named";
  for (const v1::Tensor& tensor : header.tensors()) {
    input_begins_.push_back(left_);
    input_bytes_.push_back(
        client::TensorBytes(tensor.role(), tensor.dtype(), sizes));
    left_ += input_bytes_.back();
  }
  size_t largest = 0;
  for (const int role_number : header.outputs()) {
    const auto role = static_cast<v1::TensorRole>(role_number);
    v1::Tensor* const tensor = answer_.add_tensors();
    tensor->set_role(role);
    tensor->set_dtype(client::OutputDType(role));
    output_bytes_.push_back(client::OutputBytes(role, sizes));
    largest = std::max(largest, output_bytes_.back());
  }
  answer_.set_request_id(header.request_id());
  buffer_ = pool->Take(std::max(left_, largest));
  return buffer_ == nullptr ? "no memory" : "";
}

bool EchoBatch::Take(uint32_t tensor, uint64_t offset, wire::WireReader data) {
  const size_t size = data.left();
  if (tensor >= input_bytes_.size() || offset > input_bytes_[tensor] ||
      size > input_bytes_[tensor] - offset || size > left_) {
    return false;
  }
  left_ -= size;
  return data.Copy(size, buffer_->data.get() + input_begins_[tensor] + offset);
}

grpc::Slice EchoBatch::Output(size_t bytes) const {
  using Owner = std::shared_ptr<BufferPool::Buffer>;
  return {buffer_->data.get(), bytes,
          [](void* owner) { delete static_cast<Owner*>(owner); },
          new Owner(buffer_)};
}

}  // namespace counterweight::bench
