// Checks that the system grants what the server needs.
#ifndef COUNTERWEIGHT_SERVER_SYSTEM_LIMITS_H_
#define COUNTERWEIGHT_SERVER_SYSTEM_LIMITS_H_

#include <cstdint>
#include <string>

#include "server/config/config.h"

namespace counterweight::server {

// Number of threads of a server on the CPU soon after its start, gRPC's threads
// included.
int NumThreadsAtStart(const Config& config);

// True if this process can start `count` more threads now. Called before gRPC
// starts, which aborts the process when it gets no thread.
bool HasSpareThreads(int count);

// Bytes of address space that a server on the CPU reserves under full load: its
// budgets, and a stack and a heap for each thread. Most pages of these stacks
// and heaps stay unused.
int64_t AddressSpaceNeed(const Config& config);

// Empty, or a sentence that names the limit of threads or of address space that
// is too low for `config`. Beyond either limit gRPC ends the process.
std::string CheckSystemLimits(const Config& config);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SYSTEM_LIMITS_H_
