// Mutates MergeSumsRequests: changes one field or several.
#include <cstddef>
#include <cstdint>

#include "counterweight/v1/correction_service.pb.h"
#include "tests/fuzz/message_mutator.h"

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max_size, unsigned int seed) {
  using counterweight::fuzz::MessageMutator;
  counterweight::v1::MergeSumsRequest request;
  return counterweight::fuzz::MutateMessage(
      data, size, max_size, seed, &request, [&](MessageMutator* mutator) {
        // A part more, which is of the same method.
        if (mutator->Below(8) == 0 && request.parts_size() > 0) {
          const counterweight::v1::PartialSums part =
              request.parts(mutator->Below(request.parts_size()));
          *request.add_parts() = part;
        }
      });
}
