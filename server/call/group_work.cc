#include "server/call/group_work.h"

#include "counterweight/v1/correction_service.pb.h"
#include "server/call/message_work.h"
#include "server/engine/codec_group_baseline.h"

namespace counterweight::server {

std::unique_ptr<Work> MakeGroupWork(Call* call) {
  using GroupWork =
      MessageWork<v1::GroupAdvantagesRequest, v1::GroupAdvantagesResponse>;
  // A row has at least 5 bytes; parsed, with its place in its group and its
  // answer, at most 80. A counter of one byte is 8.
  constexpr int64_t kMemoryOfByte = 16;
  return std::make_unique<GroupWork>(
      call, MessageLimits{kMaxGroupBytes, kMemoryOfByte}, GroupAdvantages);
}

}  // namespace counterweight::server
