// Sums of the parts of a step.
//
// Input: a MergeSumsRequest.
//
// Checks: refusals are readable; sums that are taken have the lengths of the
// parts, and alone a canonical form that is taken again; what is made of them
// can be parsed.
#include <cstdint>
#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "server/engine/codec_partial.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/laws.h"

namespace counterweight::fuzz {
namespace {

void ExpectSameLengths(const v1::PartialSums& a, const v1::PartialSums& b) {
  Expect(a.sums_size() == b.sums_size() && a.maxima_size() == b.maxima_size(),
         "sums have the lengths of their parts");
}

// A part that is taken alone has a canonical form, which is a part too.
void CheckPart(const v1::PartialSums& part) {
  v1::MergeSumsRequest request;
  *request.add_parts() = part;
  v1::MergeSumsResponse once;
  const server::Violations violations = server::MergeSums(request, &once);
  ExpectReadable(violations);
  if (!violations.empty()) return;
  ExpectSameLengths(once.sums(), part);
  *request.mutable_parts(0) = once.sums();
  v1::MergeSumsResponse twice;
  Expect(server::MergeSums(request, &twice).empty(),
         "a canonical form is taken");
  ExpectSameLengths(twice.sums(), part);
}

void CheckRequest(const std::string& bytes) {
  v1::MergeSumsRequest request;
  if (!request.ParseFromString(bytes)) return;
  v1::MergeSumsResponse response;
  const server::Violations violations = server::MergeSums(request, &response);
  ExpectReadable(violations);
  if (!violations.empty()) return;
  ExpectSameLengths(response.sums(), request.parts(0));
  Expect(response.has_answer() == request.has_method(),
         "there is an answer if there is a method");
  v1::MergeSumsResponse parsed;
  Expect(parsed.ParseFromString(response.SerializeAsString()),
         "clients can parse the answer");
  for (const v1::PartialSums& part : request.parts()) CheckPart(part);
}

}  // namespace
}  // namespace counterweight::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  counterweight::fuzz::SilenceLibraries();
  counterweight::fuzz::CheckRequest({data, data + size});
  return 0;
}
