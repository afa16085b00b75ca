// The work of GroupAdvantages.
#ifndef COUNTERWEIGHT_SERVER_CALL_GROUP_WORK_H_
#define COUNTERWEIGHT_SERVER_CALL_GROUP_WORK_H_

#include <cstdint>
#include <memory>

#include "server/call/compute_call.h"

namespace counterweight::server {

// Largest message, decompressed: 180,000 rows or more.
inline constexpr int64_t kMaxGroupBytes = int64_t{4} << 20;

std::unique_ptr<Work> MakeGroupWork(Call* call);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_GROUP_WORK_H_
