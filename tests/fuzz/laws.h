// Laws that several targets check.
#ifndef COUNTERWEIGHT_TESTS_FUZZ_LAWS_H_
#define COUNTERWEIGHT_TESTS_FUZZ_LAWS_H_

#include "counterweight/v1/correction_service.pb.h"
#include "server/engine/codec.h"
#include "server/engine/violation.h"

namespace counterweight::fuzz {

// Expects that each names a field and a reason, and that together they become a
// status that a client can read. Accepts an empty list.
void ExpectReadable(const server::Violations& violations);

// Expects that kernels accept the spec.
void ExpectValid(const kernels::CorrectionSpec& spec);

// Computes on one thread, writes outputs into *response, and expects numbers
// or a readable refusal. `batch` is decoded's, with all of its inputs.
void ExpectComputes(const server::Decoded& decoded, const kernels::Batch& batch,
                    v1::CorrectResponse* response);

// Drops what gRPC and protobuf log; protobuf has a message for every string
// that is not UTF-8.
void SilenceLibraries();

}  // namespace counterweight::fuzz

#endif  // COUNTERWEIGHT_TESTS_FUZZ_LAWS_H_
