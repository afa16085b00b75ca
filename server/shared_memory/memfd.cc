#include "server/shared_memory/memfd.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

constexpr int64_t kBlockBytes = 512;

std::string MissingSeals(int seals) {
  std::string missing;
  for (const auto& [seal, name] : {std::pair(F_SEAL_SHRINK, " F_SEAL_SHRINK"),
                                   std::pair(F_SEAL_GROW, " F_SEAL_GROW"),
                                   std::pair(F_SEAL_SEAL, " F_SEAL_SEAL")}) {
    if ((seals & seal) == 0) missing += name;
  }
  return missing;
}

std::string AccessProblem(const MemfdFacts& facts, RegionAccess access) {
  const int opened = facts.open_flags & O_ACCMODE;
  if (access == RegionAccess::kRead) {
    return opened == O_WRONLY ? "the descriptor is not open for reading" : "";
  }
  if (opened != O_RDWR) {
    return "the descriptor is not open for reading and writing";
  }
  if ((facts.seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0) {
    return "the memfd is sealed against writing and cannot be registered for "
           "it";
  }
  return "";
}

}  // namespace

bool CanHaveSeals(int fd) { return fcntl(fd, F_GET_SEALS) >= 0; }

MemfdFacts ReadMemfdFacts(int fd) {
  MemfdFacts facts;
  struct statfs file_system {};
  struct stat file {};
  // Only the kernel's own memory has seals; every other file fails here and is
  // not queried further, because a FUSE file may never answer.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || fstatfs(fd, &file_system) != 0 || fstat(fd, &file) != 0) {
    return facts;
  }
  facts.seals = seals;
  facts.file_system = file_system.f_type;
  facts.mode = file.st_mode;
  facts.open_flags = fcntl(fd, F_GETFL);
  facts.size = file.st_size;
  facts.blocks = file.st_blocks;
  return facts;
}

std::string MemfdProblem(const MemfdFacts& facts, uint64_t size,
                         RegionAccess access) {
  if (facts.seals < 0 || !S_ISREG(facts.mode)) {
    return "the descriptor is not a memfd";
  }
  if (facts.file_system != TMPFS_MAGIC) {
    return "the descriptor is not a memfd of ordinary pages (MFD_HUGETLB is "
           "not supported)";
  }
  const std::string missing = MissingSeals(facts.seals);
  if (!missing.empty()) {
    return fmt::format("the memfd lacks seals:{}", missing);
  }
  if (size == 0) return "the size is 0";
  if (facts.size < 0 || static_cast<uint64_t>(facts.size) != size) {
    return fmt::format("the size is {}, but the memfd has {} bytes", size,
                       facts.size);
  }
  if (facts.blocks < (facts.size - 1) / kBlockBytes + 1) {
    return "the memfd has holes: write to all of its pages, or use fallocate, "
           "first";
  }
  return AccessProblem(facts, access);
}

}  // namespace counterweight::server
