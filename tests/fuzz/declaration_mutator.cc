// Mutates DeclareRunRequests: changes one field or several.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "tests/fuzz/message_mutator.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max_size, unsigned int seed) {
  counterweight::fuzz::MessageMutator mutator(seed);
  counterweight::v1::DeclareRunRequest request;
  if (mutator.Below(16) == 0 ||
      !request.ParseFromArray(data, static_cast<int>(size))) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  for (int i = mutator.Below(3); i >= 0; --i) mutator.Mutate(&request);
  const std::string bytes = request.SerializeAsString();
  if (bytes.size() > max_size) return size;
  std::copy(bytes.begin(), bytes.end(), data);
  return bytes.size();
}
