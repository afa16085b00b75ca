// Mutates GroupAdvantagesRequests: changes one field or several.
#include <cstddef>
#include <cstdint>

#include "counterweight/v1/correction_service.pb.h"
#include "tests/fuzz/message_mutator.h"

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max_size, unsigned int seed) {
  counterweight::v1::GroupAdvantagesRequest request;
  return counterweight::fuzz::MutateMessage(data, size, max_size, seed,
                                            &request);
}
