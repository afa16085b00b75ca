// Advantages of groups.
//
// Input: a GroupAdvantagesRequest.
//
// Checks: an answer has finite numbers, one for each row, and the order of rows
// changes none of their bits.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "server/engine/codec_group_baseline.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/laws.h"

namespace counterweight::fuzz {
namespace {

template <class Numbers>
void Reverse(Numbers* numbers) {
  std::reverse(numbers->begin(), numbers->end());
}

void CheckRequest(const std::string& bytes) {
  v1::GroupAdvantagesRequest request;
  if (!request.ParseFromString(bytes)) return;
  v1::GroupAdvantagesResponse answer;
  const server::Violations violations =
      server::GroupAdvantages(request, &answer);
  ExpectReadable(violations);
  if (!violations.empty()) return;
  Expect(answer.advantages_size() == request.rewards_size() &&
             answer.baselines_size() == request.rewards_size(),
         "each row has an advantage and a baseline");
  for (const float advantage : answer.advantages()) {
    Expect(!std::isnan(advantage), "an advantage is a number");
  }
  Reverse(request.mutable_rewards());
  Reverse(request.mutable_group_ids());
  Reverse(request.mutable_tokens());
  Reverse(request.mutable_kept_tokens());
  v1::GroupAdvantagesResponse reversed;
  Expect(server::GroupAdvantages(request, &reversed).empty(),
         "the order of rows refuses nothing");
  Reverse(reversed.mutable_advantages());
  Reverse(reversed.mutable_baselines());
  Expect(std::equal(answer.advantages().begin(), answer.advantages().end(),
                    reversed.advantages().begin()) &&
             std::equal(answer.baselines().begin(), answer.baselines().end(),
                        reversed.baselines().begin()),
         "the order of rows changes nothing");
}

}  // namespace
}  // namespace counterweight::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  counterweight::fuzz::SilenceLibraries();
  counterweight::fuzz::CheckRequest({data, data + size});
  return 0;
}
