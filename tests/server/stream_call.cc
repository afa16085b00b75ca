#include "tests/server/stream_call.h"

#include <algorithm>
#include <cstdint>

#include "gtest/gtest.h"

namespace counterweight::server {

StreamCall::StreamCall(const std::shared_ptr<grpc::Channel>& channel)
    : stub_(v1::CorrectionService::NewStub(channel)) {}

StreamCall::~StreamCall() {
  if (stream_ == nullptr || is_finished_) return;
  context_.TryCancel();
  Finish();
}

void StreamCall::Begin() {
  if (stream_ == nullptr) stream_ = stub_->CorrectStream(&context_);
}

void StreamCall::SendHeader(const v1::CorrectRequest& request) {
  v1::CorrectStreamRequest frame;
  *frame.mutable_header() = request;
  for (v1::Tensor& tensor : *frame.mutable_header()->mutable_tensors()) {
    tensor.clear_data();
  }
  Send(frame);
}

bool StreamCall::SendChunk(uint32_t tensor, uint64_t offset,
                           const std::string& data) {
  v1::CorrectStreamRequest frame;
  frame.mutable_chunk()->set_tensor(tensor);
  frame.mutable_chunk()->set_offset(offset);
  frame.mutable_chunk()->set_data(data);
  return Send(frame);
}

bool StreamCall::Send(const v1::CorrectStreamRequest& frame) {
  Begin();
  return stream_->Write(frame);
}

void StreamCall::SendTensors(const v1::CorrectRequest& request,
                             size_t chunk_bytes) {
  size_t longest = 0;
  for (int i = 0; i < request.tensors_size(); ++i) {
    const v1::Tensor& tensor = request.tensors(i);
    if (tensor.role() == v1::TENSOR_ROLE_RESPONSE_MASK) {
      SendChunk(static_cast<uint32_t>(i), 0, tensor.data());
    } else {
      longest = std::max(longest, tensor.data().size());
    }
  }
  if (chunk_bytes == 0) chunk_bytes = std::max<size_t>(1, longest);
  for (size_t at = 0; at < longest; at += chunk_bytes) {
    for (int i = 0; i < request.tensors_size(); ++i) {
      const v1::Tensor& tensor = request.tensors(i);
      if (tensor.role() == v1::TENSOR_ROLE_RESPONSE_MASK ||
          at >= tensor.data().size()) {
        continue;
      }
      SendChunk(static_cast<uint32_t>(i), at,
                tensor.data().substr(at, chunk_bytes));
    }
  }
}

void StreamCall::CloseWriting() { stream_->WritesDone(); }

bool StreamCall::Read(v1::CorrectStreamResponse* frame) {
  Begin();
  return stream_->Read(frame);
}

bool StreamCall::IsAdmitted() {
  v1::CorrectStreamResponse frame;
  return Read(&frame) && frame.has_admission();
}

v1::CorrectResponse StreamCall::ReadAnswer() {
  v1::CorrectResponse response;
  v1::CorrectStreamResponse frame;
  bool has_result = false;
  while (Read(&frame)) {
    if (frame.has_result()) {
      EXPECT_FALSE(has_result);
      has_result = true;
      response = frame.result();
    } else if (frame.has_chunk()) {
      EXPECT_TRUE(has_result);
      const auto at = static_cast<int>(frame.chunk().tensor());
      if (at >= response.tensors_size()) {
        ADD_FAILURE() << "chunk of tensor " << at;
        break;
      }
      std::string* const data = response.mutable_tensors(at)->mutable_data();
      EXPECT_EQ(frame.chunk().offset(), data->size());
      data->append(frame.chunk().data());
    } else if (frame.has_summary()) {
      summary_ = frame.summary();
    }
  }
  return response;
}

grpc::Status StreamCall::Finish() {
  Begin();
  // Otherwise Finish would wait for unread frames.
  v1::CorrectStreamResponse ignored;
  while (stream_->Read(&ignored)) {
  }
  is_finished_ = true;
  return stream_->Finish();
}

grpc::Status Stream(const std::shared_ptr<grpc::Channel>& channel,
                    const v1::CorrectRequest& request, size_t chunk_bytes,
                    v1::CorrectResponse* response) {
  StreamCall call(channel);
  call.SendHeader(request);
  if (!call.IsAdmitted()) return call.Finish();
  call.SendTensors(request, chunk_bytes);
  *response = call.ReadAnswer();
  return call.Finish();
}

}  // namespace counterweight::server
