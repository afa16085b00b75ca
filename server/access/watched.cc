#include "server/access/watched.h"

#include <sys/stat.h>

namespace counterweight::server {

std::vector<FileStamp> StampsOf(const std::vector<std::string>& paths) {
  std::vector<FileStamp> stamps;
  for (const std::string& path : paths) {
    FileStamp& stamp = stamps.emplace_back();
    struct stat found {};
    if (stat(path.c_str(), &found) != 0) continue;
    stamp = {.device = found.st_dev,
             .inode = found.st_ino,
             .bytes = found.st_size,
             .modified_ns = int64_t{found.st_mtim.tv_sec} * 1'000'000'000 +
                            found.st_mtim.tv_nsec};
  }
  return stamps;
}

}  // namespace counterweight::server
