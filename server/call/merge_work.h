// The work of MergeSums.
#ifndef COUNTERWEIGHT_SERVER_CALL_MERGE_WORK_H_
#define COUNTERWEIGHT_SERVER_CALL_MERGE_WORK_H_

#include <cstdint>
#include <memory>

#include "server/call/compute_call.h"

namespace counterweight::server {

// Largest message, decompressed: 32 parts of 8 KiB.
inline constexpr int64_t kMaxMergeBytes = int64_t{256} << 10;

std::unique_ptr<Work> MakeMergeWork(Call* call);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_MERGE_WORK_H_
