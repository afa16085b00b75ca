// Mutates blocks: changes one key or value.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "tests/fuzz/message_mutator.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace counterweight::fuzz {
namespace {

// dialect_fuzz.cc: bytes before the block, and the position of its JSON flag.
constexpr size_t kHeadBytes = 5;
constexpr size_t kOptions = 2;
constexpr uint8_t kIsJson = 1;

// The contract is LLVMFuzzerCustomMutator's.
size_t MutateInput(uint8_t* data, size_t size, size_t max_size,
                   unsigned int seed) {
  MessageMutator mutator(seed);
  google::protobuf::Struct block;
  if (size < kHeadBytes || mutator.Below(8) == 0) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  const std::string old(data + kHeadBytes, data + size);
  const bool is_json = (data[kOptions] & kIsJson) != 0;
  if (is_json ? !google::protobuf::util::JsonStringToMessage(old, &block).ok()
              : !block.ParseFromString(old)) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  for (int i = mutator.Below(3); i >= 0; --i) mutator.Mutate(&block);
  const std::string bytes = block.SerializeAsString();
  if (kHeadBytes + bytes.size() > max_size) return size;
  data[kOptions] &= static_cast<uint8_t>(~kIsJson);
  std::copy(bytes.begin(), bytes.end(), data + kHeadBytes);
  return kHeadBytes + bytes.size();
}

}  // namespace
}  // namespace counterweight::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max_size, unsigned int seed) {
  return counterweight::fuzz::MutateInput(data, size, max_size, seed);
}
