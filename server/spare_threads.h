// A check that the system grants the threads that the server needs.
#ifndef COUNTERWEIGHT_SERVER_SPARE_THREADS_H_
#define COUNTERWEIGHT_SERVER_SPARE_THREADS_H_

#include "server/config/config.h"

namespace counterweight::server {

// Number of threads of a server on the CPU soon after its start, gRPC's threads
// included.
int NumThreadsAtStart(const Config& config);

// True if this process can start `count` more threads now. Called before gRPC
// starts, which aborts the process when it gets no thread.
bool HasSpareThreads(int count);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SPARE_THREADS_H_
