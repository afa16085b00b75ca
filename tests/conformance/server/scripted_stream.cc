#include "tests/conformance/server/scripted_stream.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <span>
#include <string>

#include "tests/conformance/server/answers.h"
#include "tests/conformance/server/checksum.h"

namespace counterweight::conformance {
namespace {

constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();
// A report need not hold every chunk of one byte.
constexpr size_t kMostNotedChunks = 256;

}  // namespace

bool ScriptedStream::Read(v1::CorrectStreamRequest* message) {
  if (!pending_.valid()) return stream_->Read(message);
  const bool read = pending_.get();
  *message = std::move(pending_message_);
  return read;
}

bool ScriptedStream::Peek(double seconds) {
  if (!pending_.valid()) {
    pending_ = std::async(std::launch::async,
                          [this] { return stream_->Read(&pending_message_); });
  }
  return pending_.wait_for(std::chrono::duration<double>(seconds)) ==
         std::future_status::ready;
}

bool ScriptedStream::ReadHeader() {
  v1::CorrectStreamRequest message;
  if (!Read(&message) || !message.has_header()) return false;
  header_ = message.header();
  for (const v1::Tensor& tensor : header_.tensors()) {
    want_.push_back(
        TensorBytes(header_.layout(), tensor.role(), tensor.dtype()));
  }
  have_.resize(want_.size());
  checksums_.resize(want_.size());
  recorder_->Note(call_, [&](json* entry) {
    (*entry)["request_id"] = header_.request_id();
    (*entry)["message_bytes"] = message.ByteSizeLong();
    NoteVersions(header_, entry);
    NoteStep(header_, entry);
  });
  return true;
}

void ScriptedStream::Take(const v1::Chunk& chunk) {
  if (chunks_.size() < kMostNotedChunks) {
    chunks_.push_back({chunk.tensor(), chunk.offset(), chunk.data().size()});
  }
  if (chunk.tensor() >= want_.size() ||
      chunk.offset() != have_[chunk.tensor()]) {
    recorder_->Note(call_, [](json* entry) { (*entry)["gap"] = true; });
    return;
  }
  have_[chunk.tensor()] += chunk.data().size();
  checksums_[chunk.tensor()] = Checksum(
      std::as_bytes(std::span(chunk.data().data(), chunk.data().size())),
      checksums_[chunk.tensor()]);
}

bool ScriptedStream::ReadChunks(uint64_t most) {
  v1::CorrectStreamRequest message;
  for (uint64_t i = 0; i < most && have_ != want_; ++i) {
    if (!Read(&message)) return false;
    Take(message.chunk());
  }
  return true;
}

bool ScriptedStream::Write(const v1::CorrectStreamResponse& message) {
  return stream_->Write(message);
}

bool ScriptedStream::WriteChunks(const json& options) {
  const auto size = options.value("size", uint64_t{1} << 20);
  uint64_t left = options.value("most", kAll);
  const std::string only = options.value("only", "");
  for (int i = 0; i < result_.tensors_size(); ++i) {
    const v1::Tensor& tensor = result_.tensors(i);
    if (!only.empty() &&
        v1::TensorRole_Name(tensor.role()) != "TENSOR_ROLE_" + only) {
      continue;
    }
    std::string data = tensor.data();
    data.append(options.value("excess", size_t{0}), 'x');
    for (uint64_t offset = 0; offset < data.size(); offset += size) {
      if (left-- == 0) return true;
      v1::CorrectStreamResponse message;
      v1::Chunk* const chunk = message.mutable_chunk();
      chunk->set_tensor(static_cast<uint32_t>(i) +
                        options.value("tensor_shift", 0U));
      chunk->set_offset(offset + options.value("offset_shift", uint64_t{0}));
      chunk->set_data(data.substr(offset, size));
      if (!Write(message)) return false;
    }
  }
  return true;
}

void ScriptedStream::Run(const json& step, bool* ended) {
  v1::CorrectStreamResponse message;
  bool ok = true;
  if (step.contains("expect_silence")) {
    const bool early = Peek(step["expect_silence"]);
    recorder_->Note(call_, [&](json* entry) { (*entry)["early"] = early; });
  } else if (step.contains("admit")) {
    message.mutable_admission()->set_chunk_bytes(
        step["admit"].value("chunk_bytes", 0U));
    ok = Write(message);
  } else if (step.contains("read")) {
    if (step["read"] == "end") {
      v1::CorrectStreamRequest extra;
      ok = ReadChunks(kAll) && !Read(&extra);
      recorder_->Note(call_,
                      [&](json* entry) { (*entry)["half_closed"] = ok; });
    } else {
      ok = ReadChunks(step["read"] == "all" ? kAll
                                            : step["read"].get<uint64_t>());
    }
  } else if (step.contains("result")) {
    result_ = Answer(header_, step["result"]);
    *message.mutable_result() = result_;
    for (v1::Tensor& tensor : *message.mutable_result()->mutable_tensors()) {
      tensor.clear_data();
    }
    ok = Write(message);
  } else if (step.contains("chunks")) {
    ok = WriteChunks(step["chunks"]);
  } else if (step.contains("unknown_frame")) {
    AddUnknownField(&message);
    ok = Write(message);
  } else if (step.contains("unreadable_frame")) {
    AddUnreadableField(v1::CorrectStreamResponse::kResultFieldNumber, &message);
    ok = Write(message);
  } else {
    Merge(step.at("summary"), message.mutable_summary());
    ok = Write(message);
  }
  *ended = !ok;
}

void ScriptedStream::End() {
  json tensors = json::array();
  for (size_t i = 0; i < have_.size(); ++i) {
    const v1::TensorRole role = header_.tensors(static_cast<int>(i)).role();
    tensors.push_back(
        {v1::TensorRole_Name(role).substr(12), have_[i], checksums_[i]});
  }
  recorder_->Note(call_, [&](json* entry) {
    (*entry)["tensors"] = tensors;
    (*entry)["chunks"] = chunks_;
  });
}

}  // namespace counterweight::conformance
