// Whether the system lets us have the threads that we are going to need.
#ifndef COUNTERWEIGHT_SERVER_SPARE_THREADS_H_
#define COUNTERWEIGHT_SERVER_SPARE_THREADS_H_

#include "server/config.h"

namespace counterweight::server {

// What a server on the CPU has soon after its start, gRPC's threads included.
int NumThreadsAtStart(const Config& config);

// True if this process can have so many threads more at this moment. Asked
// before gRPC starts, which ends the process where it gets no thread.
bool HasSpareThreads(int count);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SPARE_THREADS_H_
