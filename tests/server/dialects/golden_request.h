// A golden as a client's request.
#ifndef COUNTERWEIGHT_TESTS_SERVER_DIALECTS_GOLDEN_REQUEST_H_
#define COUNTERWEIGHT_TESTS_SERVER_DIALECTS_GOLDEN_REQUEST_H_

#include "counterweight/v1/correction_service.pb.h"
#include "tests/server/dialects/golden.h"

namespace counterweight::server {

// Padded float32 tensors, the block, and every output that the golden has.
v1::CorrectRequest RequestOf(const Golden& golden);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_DIALECTS_GOLDEN_REQUEST_H_
