// Release of the C library's free memory.
#ifndef COUNTERWEIGHT_SERVER_HEAP_H_
#define COUNTERWEIGHT_SERVER_HEAP_H_

namespace counterweight::server {

// Gives free memory of the heap back to the system, if it is worth it: glibc
// keeps what gRPC and protobuf freed in its arenas, gigabytes after a peak, and
// trims by itself only the end of one of them. Takes its locks for as long as
// that lasts, so it is for idle moments.
void TrimHeap();

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_HEAP_H_
