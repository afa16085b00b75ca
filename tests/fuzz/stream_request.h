// Valid requests, and their chunks.
#ifndef COUNTERWEIGHT_TESTS_FUZZ_STREAM_REQUEST_H_
#define COUNTERWEIGHT_TESTS_FUZZ_STREAM_REQUEST_H_

#include "counterweight/v1/correction_service.pb.h"
#include "tests/fuzz/input.h"

namespace counterweight::fuzz {

// With its tensors' data; of at most 256 positions. It may hold a NaN, which is
// refused once it is seen.
v1::CorrectRequest TakeRequest(Input* input);

// The header of a stream for the same request.
v1::CorrectStreamRequest HeaderOf(const v1::CorrectRequest& request);

}  // namespace counterweight::fuzz

#endif  // COUNTERWEIGHT_TESTS_FUZZ_STREAM_REQUEST_H_
