// Checks of a descriptor before its memory is mapped.
#ifndef COUNTERWEIGHT_SERVER_SHARED_MEMORY_MEMFD_H_
#define COUNTERWEIGHT_SERVER_SHARED_MEMORY_MEMFD_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "server/engine/region.h"

namespace counterweight::server {

// The kernel's facts about a descriptor. Members other than `seals` are set
// only if the file can have seals.
struct MemfdFacts {
  int seals = -1;           // F_GET_SEALS; negative: no such file
  int64_t file_system = 0;  // statfs.f_type
  mode_t mode = 0;
  int open_flags = 0;  // F_GETFL
  int64_t size = 0;    // bytes
  int64_t blocks = 0;  // of 512 bytes, that exist
};

// True only for the kernel's own memory. Neither this nor ReadMemfdFacts
// queries a client's file system, which may never answer.
bool CanHaveSeals(int fd);
MemfdFacts ReadMemfdFacts(int fd);

// Returns why a file cannot be a region of `size` bytes, as a sentence; empty
// if it can. A region cannot change its size, and its pages exist.
std::string MemfdProblem(const MemfdFacts& facts, uint64_t size,
                         RegionAccess access);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SHARED_MEMORY_MEMFD_H_
