#include "tests/embedded/device_batch.h"

#include <algorithm>
#include <functional>
#include <regex>
#include <sstream>

namespace counterweight::embedded {
namespace {

using kernels::InputRole;

struct Head {
  const char* role;
  InputRole input;
};
constexpr Head kHeads[] = {{"ROLLOUT_LOG_PROBS", InputRole::kRollout},
                           {"OLD_LOG_PROBS", InputRole::kOld},
                           {"CURRENT_LOG_PROBS", InputRole::kCurrent},
                           {"REF_LOG_PROBS", InputRole::kRef},
                           {"ADVANTAGES", InputRole::kAdvantages}};

std::string HeadOf(const std::string& role, const char* dtype) {
  return "{\"role\": \"TENSOR_ROLE_" + role + "\", \"dtype\": \"D_TYPE_" +
         dtype + "\"}";
}

std::string Text(const cw_bytes& bytes) {
  return {static_cast<const char*>(bytes.data), bytes.size};
}

// Without times, and sorted: protobuf writes a map in any order.
std::string Comparable(const std::string& json) {
  static const std::regex times(
      "\"timing\":\\{[^}]*\\}|\"backend\":\"[a-z]*\"");
  std::istringstream stream(std::regex_replace(json, times, ""));
  std::vector<std::string> parts;
  for (std::string part; std::getline(stream, part, ',');) {
    // The map's first and last entry have its braces.
    std::erase_if(part, [](char c) { return c == '{' || c == '}'; });
    const size_t map = part.find("\"metrics\":");
    parts.push_back(map == std::string::npos ? part : part.substr(map + 10));
  }
  std::sort(parts.begin(), parts.end());
  std::string text;
  for (const std::string& part : parts) text += part + "\n";
  return text;
}

// The answer but its outputs.
Answered Read(int code, cw_answer* answer) {
  if (code != CW_OK) return {code, cw_last_error()->message, "", {}};
  Answered read{code, Comparable(Text(answer->message)), "", {}};
  cw_bytes sums{};
  if (cw_sums(answer, CW_JSON, &sums) == CW_OK) read.sums = Text(sums);
  return read;
}

struct Placed {
  void* memory;
  size_t size;
};

// The context of Place.
struct Places {
  kernels::Trainer* trainer;
  std::map<int, Placed> by_role;
};

void* Place(void* context, int32_t role, int32_t /*dtype*/, size_t size) {
  auto* const places = static_cast<Places*>(context);
  void* const memory = places->trainer->Allocate(size);
  places->by_role[role] = {memory, size};
  return memory;
}

void* PlaceOnHost(void* context, int32_t role, int32_t /*dtype*/, size_t size) {
  auto* const outputs = static_cast<std::map<int, std::string>*>(context);
  std::string& memory = (*outputs)[role];
  memory.resize(size);
  return memory.data();
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Answered& answered) {
  out << answered.code << " " << answered.message << "\n" << answered.sums;
  for (const auto& [role, bytes] : answered.outputs) {
    out << "\n"
        << role << ": " << bytes.size() << " bytes, hash "
        << std::hash<std::string>()(bytes);
  }
  return out;
}

DeviceBatch::DeviceBatch(const kernels::OwnedBatch& batch) {
  const kernels::Batch view = batch.view();
  const auto positions = static_cast<size_t>(batch.num_positions());
  layout_ = "{\"packed\": {\"sequenceLengths\": [";
  for (int64_t i = 0; i < view.num_sequences; ++i) {
    lengths_.push_back(view.offsets[i + 1] - view.offsets[i]);
    layout_ += (i > 0 ? ", " : "") + std::to_string(lengths_.back());
  }
  layout_ += "]}}";
  for (const Head& head : kHeads) {
    const kernels::TensorView& tensor = view.tensor(head.input);
    memory_.emplace_back(static_cast<const char*>(tensor.data),
                         positions * sizeof(float));
    heads_ += HeadOf(head.role, "F32") + ", ";
  }
  memory_.emplace_back(reinterpret_cast<const char*>(view.response_mask),
                       positions);
  heads_ += HeadOf("RESPONSE_MASK", "U8");
  for (const std::string& bytes : memory_) {
    tensors_.push_back({bytes.data(), bytes.size()});
  }
}

std::string DeviceBatch::Message(const std::string& method,
                                 const std::vector<int>& outputs,
                                 const std::string& more) const {
  std::string message = "{\"requestId\": \"a\", \"layout\": " + layout_ +
                        ", \"tensors\": [" + heads_ +
                        "], \"method\": " + method + ", \"outputs\": [";
  for (size_t i = 0; i < outputs.size(); ++i) {
    message += (i > 0 ? ", " : "") + std::to_string(outputs[i]);
  }
  return message + "]" + more + "}";
}

cw_request DeviceBatch::Request(const std::string& message,
                                const std::vector<cw_bytes>& tensors) {
  cw_request request{};
  request.struct_size = sizeof(request);
  request.format = CW_JSON;
  request.message = {message.data(), message.size()};
  request.tensors = tensors.data();
  request.num_tensors = tensors.size();
  return request;
}

Answered DeviceBatch::OnHost(cw_handle* handle,
                             const std::string& message) const {
  cw_request request = Request(message, tensors_);
  std::map<int, std::string> outputs;
  request.place = PlaceOnHost;
  request.context = &outputs;
  cw_answer* answer = nullptr;
  const int code = cw_correct(handle, &request, &answer);
  Answered read = Read(code, answer);
  if (code == CW_OK) read.outputs = outputs;
  cw_free(answer);
  return read;
}

Answered DeviceBatch::OnDevice(cw_handle* handle, const std::string& message,
                               kernels::Trainer* trainer) const {
  std::vector<cw_bytes> sent;
  for (const std::string& bytes : memory_) {
    sent.push_back({trainer->Send(bytes.data(), bytes.size()), bytes.size()});
  }
  Places places{trainer, {}};
  cw_request request = Request(message, sent);
  request.place = Place;
  request.context = &places;
  request.memory = CW_CUDA;
  request.stream = trainer->stream();
  cw_answer* answer = nullptr;
  const int code = cw_correct(handle, &request, &answer);
  Answered read = Read(code, answer);
  cw_free(answer);
  if (code == CW_OK) {
    for (const auto& [role, place] : places.by_role) {
      std::string& bytes = read.outputs[role];
      bytes.resize(place.size);
      trainer->Receive(place.memory, bytes.data(), place.size);
    }
  }
  trainer->Overwrite();
  trainer->Wait();
  return read;
}

Answered DeviceBatch::Prepared(cw_handle* handle, const std::string& message,
                               kernels::Trainer* trainer,
                               bool knows_places) const {
  const cw_request request = Request(message, {});
  cw_plan* plan = nullptr;
  const int prepared = cw_prepare(handle, &request, &plan);
  if (prepared != CW_OK) return Read(prepared, nullptr);
  const cw_signature& signature = *cw_signature_of(plan);
  int64_t positions = 0;
  for (const int64_t length : lengths_) positions += length;
  cw_batch batch{};
  batch.struct_size = sizeof(batch);
  batch.num_sequences = static_cast<int64_t>(lengths_.size());
  batch.sequence_lengths = lengths_.data();
  batch.length = -1;
  for (size_t i = 0; i < memory_.size(); ++i) {
    batch.inputs[i] = trainer == nullptr
                          ? memory_[i].data()
                          : trainer->Send(memory_[i].data(), memory_[i].size());
  }
  constexpr int kKeepMask = 17;
  constexpr int kReasons = 18;
  constexpr int kSequenceReasons = 19;
  std::map<int, std::string> outputs;
  for (size_t i = 0; i < signature.num_outputs; ++i) {
    const int role = signature.outputs[i].role;
    const int64_t size = role == kSequenceReasons ? 2 * batch.num_sequences
                         : role == kKeepMask      ? positions
                         : role == kReasons       ? 2 * positions
                                                  : 4 * positions;
    std::string& bytes = outputs[role];
    bytes.resize(static_cast<size_t>(size));
    batch.outputs[i] =
        trainer == nullptr ? bytes.data() : trainer->Allocate(bytes.size());
  }
  std::vector<double> numbers(signature.num_numbers);
  batch.numbers = numbers.data();
  if (trainer != nullptr) {
    batch.memory = CW_CUDA;
    batch.knows_places = knows_places ? 1 : 0;
    batch.stream = trainer->stream();
  }
  const int code = cw_run(plan, &batch);
  cw_answer* answer = nullptr;
  if (code == CW_OK) cw_describe(plan, numbers.data(), CW_JSON, &answer);
  Answered read = Read(code, answer);
  cw_free(answer);
  for (size_t i = 0; code == CW_OK && i < signature.num_outputs; ++i) {
    std::string& bytes = outputs[signature.outputs[i].role];
    if (trainer != nullptr) {
      trainer->Receive(batch.outputs[i], bytes.data(), bytes.size());
    }
  }
  if (trainer != nullptr) {
    trainer->Overwrite();
    trainer->Wait();
  }
  if (code == CW_OK) read.outputs = outputs;
  cw_discard(plan);
  return read;
}

}  // namespace counterweight::embedded
