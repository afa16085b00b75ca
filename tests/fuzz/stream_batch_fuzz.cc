// Chunks in any order into StreamBatch, against a model of bytes.
//
// Input: lengths of rows, tensors, then chunk after chunk.
//
// Checks: no byte is written outside a tensor or too early.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "server/engine/stream_batch.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/laws.h"

namespace counterweight::fuzz {
namespace {

constexpr auto kUntouched = std::byte{0xee};
constexpr uint64_t kMaxRows = 8;
constexpr uint64_t kMaxTensors = 6;

// One tensor: its memory of exact size, and its expected content.
struct ModelTensor {
  std::unique_ptr<std::byte[]> memory;
  server::StreamTensor tensor;
  std::string received;

  int64_t missing() const {
    return tensor.bytes - static_cast<int64_t>(received.size());
  }
};

class Model {
 public:
  explicit Model(Input* input) {
    const uint64_t rows = input->TakeBelow(kMaxRows + 1);
    for (uint64_t i = 0; i < rows; ++i) {
      offsets_.push_back(offsets_.back() +
                         static_cast<int64_t>(input->TakeBelow(16)));
    }
    const uint64_t count = 1 + input->TakeBelow(kMaxTensors);
    for (uint64_t i = 0; i < count; ++i) Add(input->TakeByte());
    std::vector<server::StreamTensor> tensors;
    for (const ModelTensor& each : tensors_) tensors.push_back(each.tensor);
    batch_ = server::StreamBatch(tensors, offsets_);
  }

  // Sends one chunk; false if it was refused, which ends a stream.
  bool Send(Input* input) {
    wire::Chunk chunk;
    const uint8_t choice = input->TakeByte();
    chunk.tensor = static_cast<uint32_t>(input->TakeBelow(tensors_.size() + 1));
    ModelTensor* const model =
        chunk.tensor < tensors_.size() ? &tensors_[chunk.tensor] : nullptr;
    // Mostly valid chunks: invalid ones are soon explored.
    chunk.offset = model == nullptr ? 0 : model->received.size();
    if (choice % 16 == 0) {
      chunk.offset = input->TakeBelow(std::numeric_limits<uint64_t>::max());
    }
    std::string data = input->TakeBytes(choice / 16 * size_t{5});
    if (model != nullptr && model->tensor.is_mask && choice % 16 != 1) {
      for (char& byte : data) byte = static_cast<char>(byte & 1);
    }
    return Take(chunk, data, model);
  }

  void Check() const {
    int64_t received = 0;
    int64_t missing = 0;
    int64_t positions = std::numeric_limits<int64_t>::max();
    bool has_mask = false;
    for (const ModelTensor& each : tensors_) {
      const auto size = static_cast<int64_t>(each.received.size());
      received += size;
      missing += each.missing();
      positions = std::min(positions, size / each.tensor.element_size);
      has_mask = has_mask || (each.tensor.is_mask && each.missing() == 0);
      Expect(std::equal(each.received.begin(), each.received.end(),
                        reinterpret_cast<const char*>(each.memory.get())),
             "a tensor holds the bytes of its chunks");
      Expect(std::all_of(each.memory.get() + size,
                         each.memory.get() + each.tensor.bytes,
                         [](std::byte byte) { return byte == kUntouched; }),
             "bytes that have not come are not written");
    }
    Expect(batch_.received_bytes() == received, "received bytes add up");
    Expect(batch_.missing_bytes() == missing, "missing bytes add up");
    Expect(batch_.IsWhole() == (missing == 0), "whole is when nothing lacks");
    Expect(batch_.has_mask() == has_mask, "the mask is there when it is whole");
    Expect(batch_.rows() >= 0 &&
               batch_.rows() < static_cast<int64_t>(offsets_.size()) &&
               offsets_[static_cast<size_t>(batch_.rows())] <= positions,
           "rows that are there have all of their bytes");
    Expect(received == 0 ||
               batch_.rows() + 1 == static_cast<int64_t>(offsets_.size()) ||
               offsets_[static_cast<size_t>(batch_.rows()) + 1] > positions,
           "rows that have all of their bytes are there");
    if (missing > 0) ExpectReadable({batch_.Missing()});
  }

 private:
  void Add(uint8_t kind) {
    ModelTensor added;
    added.tensor.is_mask = kind % 4 == 3;
    added.tensor.element_size = added.tensor.is_mask ? 1 : 1 << kind % 4;
    added.tensor.bytes = offsets_.back() * added.tensor.element_size;
    const auto size = static_cast<size_t>(added.tensor.bytes);
    added.memory = std::make_unique<std::byte[]>(size);
    std::fill_n(added.memory.get(), size, kUntouched);
    added.tensor.data = added.memory.get();
    tensors_.push_back(std::move(added));
  }

  bool Take(wire::Chunk chunk, const std::string& data, ModelTensor* model) {
    // Cut in its middle.
    const auto* bytes = reinterpret_cast<const uint8_t*>(data.data());
    const size_t half = data.size() / 2;
    const std::span<const uint8_t> pieces[] = {
        {bytes, half}, {}, {bytes + half, data.size() - half}};
    chunk.data = wire::WireReader(pieces);
    const server::Violations violations = batch_.Take(chunk);
    ExpectReadable(violations);
    Expect(violations.empty() == IsRight(chunk, data, model),
           "a chunk is taken where it continues its tensor");
    if (violations.empty()) model->received += data;
    return violations.empty();
  }

  static bool IsRight(const wire::Chunk& chunk, const std::string& data,
                      const ModelTensor* model) {
    if (model == nullptr || chunk.offset != model->received.size() ||
        static_cast<int64_t>(data.size()) > model->missing()) {
      return false;
    }
    return !model->tensor.is_mask ||
           std::all_of(data.begin(), data.end(),
                       [](char byte) { return byte == 0 || byte == 1; });
  }

  std::vector<int64_t> offsets_ = {0};
  std::vector<ModelTensor> tensors_;
  server::StreamBatch batch_;
};

}  // namespace
}  // namespace counterweight::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  counterweight::fuzz::Input input(data, size);
  counterweight::fuzz::Model model(&input);
  model.Check();
  while (input.remaining() > 0 && model.Send(&input)) model.Check();
  return 0;
}
