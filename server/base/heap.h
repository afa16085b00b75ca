// The C library's free memory.
#ifndef COUNTERWEIGHT_SERVER_BASE_HEAP_H_
#define COUNTERWEIGHT_SERVER_BASE_HEAP_H_

namespace counterweight::server {

// Bounds the free memory at the end of each thread's heap, which TrimHeap
// cannot give back: glibc's own bound follows the largest block that was freed,
// up to 64 MiB a thread. Blocks above the bound are given back when they are
// freed. To be called before threads start.
void BoundHeap();

// Keeps abseil's mutexes, which gRPC has several of in each call, from
// recording the order in which they are locked. Debian compiles abseil with
// that search for deadlocks: it takes half a kilobyte for each mutex that
// exists at a time and never returns it, all locks of all threads pass through
// one, and an order that could deadlock ends the process. To be called before
// threads start.
void RecordNoLockOrder();

// Gives free memory of the heap back to the system, if it is worth it: glibc
// keeps what gRPC and protobuf freed in its arenas, gigabytes after a peak, and
// trims by itself only the end of one of them. Takes its locks for as long as
// that lasts, so it is for idle moments.
void TrimHeap();

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_BASE_HEAP_H_
