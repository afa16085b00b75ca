// Sums as a value: the parts of a step, added up and finished. Part of the
// codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_PARTIAL_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_PARTIAL_H_

#include <cstdint>
#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "counterweight/v1/sums.pb.h"
#include "kernels/partial_sums.h"
#include "server/engine/codec_method.h"
#include "server/engine/dialect.h"
#include "server/engine/result.h"

namespace counterweight::server {

// Properties of the request that its sums carry, so that its method alone
// finishes them.
struct PartialIdentity {
  uint64_t method = 0;  // hash, below 2^53
  uint64_t facts = 0;
  int64_t width = 0;  // of the padded batch, where the method reads it
};

// The facts that decide about a method's numbers, and options, as bits.
uint64_t FactBitsOf(const v1::CorrectRequest& request,
                    const RequestFacts& facts);

// True if they are such bits.
bool AreFacts(uint64_t bits);

// The facts of the bits, but those of the shape.
RequestFacts FactsOf(uint64_t bits);
bool OmitsLoss(uint64_t bits);

PartialIdentity IdentityOf(const v1::CorrectRequest& request,
                           const RequestFacts& facts, const Method& method,
                           int64_t width);

// Stores the identity in the sums.
void Identify(const PartialIdentity& identity, kernels::PartialSums* sums);

void EncodePartial(const kernels::PartialSums& sums, v1::PartialSums* message);

// Reads sums that were merged by anyone, and settles them. `field` is the path
// of the message.
Result<kernels::PartialSums> ReadPartial(const v1::PartialSums& message,
                                         const std::string& field);

// Reads the method of known sums. Violations name the difference of the two.
// `parts` is the path of the sums.
Result<Method> ReadMethodOf(const v1::Method& method,
                            const kernels::PartialSums& sums,
                            const std::string& parts);

// Answers MergeSums.
Violations MergeSums(const v1::MergeSumsRequest& request,
                     v1::MergeSumsResponse* response);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_PARTIAL_H_
