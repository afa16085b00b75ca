// Mutates requests: changes one field, and fits tensors to the layout.
#include <algorithm>
#include <cstdint>
#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "tests/fuzz/header_options.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/message_mutator.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace counterweight::fuzz {
namespace {

constexpr int64_t kMaxPositions = 512;

// -1: too many to send.
int64_t PositionsOf(const v1::Layout& layout) {
  int64_t positions = 0;
  if (layout.has_padded()) {
    const v1::PaddedLayout& padded = layout.padded();
    if (padded.num_sequences() < 0 || padded.length() < 0) return -1;
    if (padded.num_sequences() > kMaxPositions ||
        padded.length() > kMaxPositions) {
      return -1;
    }
    positions = padded.num_sequences() * padded.length();
  }
  for (const int64_t length : layout.packed().sequence_lengths()) {
    if (length < 0 || length > kMaxPositions) return -1;
    positions += length;
  }
  return positions <= kMaxPositions ? positions : -1;
}

// Fits the bytes to `positions`, by repetition.
void FitTensor(int64_t positions, bool is_finite, v1::Tensor* tensor) {
  const bool is_mask = tensor->role() == v1::TENSOR_ROLE_RESPONSE_MASK;
  const bool is_wide = tensor->dtype() == v1::D_TYPE_F32;
  const auto element = static_cast<size_t>(is_mask ? 1 : is_wide ? 4 : 2);
  const std::string old = tensor->data().empty() ? "\x01" : tensor->data();
  std::string data(static_cast<size_t>(positions) * element, '\0');
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = old[i % old.size()];
    if (is_mask) data[i] = static_cast<char>(data[i] & 1);
    // The high byte of a small number, like a log-prob.
    if (is_finite && !is_mask && i % element == element - 1) {
      data[i] = static_cast<char>((data[i] & 0x81) | 0x3e);
    }
  }
  tensor->set_data(data);
}

void Fit(HeaderOptions options, MessageMutator* mutator,
         v1::CorrectRequest* request) {
  const int64_t positions = PositionsOf(request->layout());
  const bool is_finite = mutator->Below(4) != 0;
  for (v1::Tensor& tensor : *request->mutable_tensors()) {
    if (options.is_stream) {
      tensor.clear_data();
    } else if (positions >= 0 && !tensor.has_shared_memory()) {
      FitTensor(positions, is_finite, &tensor);
    }
  }
}

// The contract is LLVMFuzzerCustomMutator's.
size_t MutateInput(uint8_t* data, size_t size, size_t max_size,
                   unsigned int seed) {
  MessageMutator mutator(seed);
  v1::CorrectRequest request;
  if (size == 0 || mutator.Below(32) == 0 ||
      !request.ParseFromArray(data + 1, static_cast<int>(size - 1))) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  if (mutator.Below(16) == 0) data[0] = static_cast<uint8_t>(mutator.Below(4));
  for (int i = mutator.Below(4); i >= 0; --i) {
    // The method has the most fields.
    if (mutator.Below(3) != 0) {
      mutator.Mutate(request.mutable_method());
    } else {
      mutator.Mutate(&request);
    }
  }
  if (mutator.Below(8) != 0) Fit(HeaderOptions(data[0]), &mutator, &request);
  const std::string bytes = request.SerializeAsString();
  if (bytes.size() + 1 > max_size) return size;
  std::copy(bytes.begin(), bytes.end(), data + 1);
  return bytes.size() + 1;
}

// The contract is LLVMFuzzerCustomCrossOver's: returns the first request with
// the second's method.
size_t CrossInputs(const std::string& first, const std::string& second,
                   uint8_t* out, size_t max_size) {
  v1::CorrectRequest request;
  v1::CorrectRequest other;
  if (first.empty() || second.empty() ||
      !request.ParseFromString(first.substr(1)) ||
      !other.ParseFromString(second.substr(1))) {
    return 0;
  }
  *request.mutable_method() = other.method();
  const std::string bytes = first[0] + request.SerializeAsString();
  if (bytes.size() > max_size) return 0;
  std::copy(bytes.begin(), bytes.end(), out);
  return bytes.size();
}

}  // namespace
}  // namespace counterweight::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max_size, unsigned int seed) {
  return counterweight::fuzz::MutateInput(data, size, max_size, seed);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data1, size_t size1,
                                            const uint8_t* data2, size_t size2,
                                            uint8_t* out, size_t max_size,
                                            unsigned int /*seed*/) {
  return counterweight::fuzz::CrossInputs(
      {data1, data1 + size1}, {data2, data2 + size2}, out, max_size);
}
