#include "server/observe/process_usage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace counterweight::server {
namespace {

// Fields of /proc/self/stat after the program's name, which may hold spaces;
// index 0 is the state, field 3 of proc(5).
std::vector<std::string> StatFields() {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(text.substr(name_end + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}

double Number(const std::vector<std::string>& fields, size_t index) {
  double value = 0;
  if (index >= fields.size()) return 0;
  const std::string& text = fields[index];
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

double BootTimeSeconds() {
  std::ifstream file("/proc/stat");
  std::string word;
  while (file >> word) {
    if (double seconds = 0; word == "btime" && file >> seconds) return seconds;
  }
  return 0;
}

double CountOpenFiles() {
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  if (error) return 0;
  // One of them is the directory being read.
  return static_cast<double>(std::distance(begin(files), end(files))) - 1;
}

}  // namespace

ProcessUsage ReadProcessUsage() {
  // Positions in StatFields(): proc(5) counts from 1 and has two fields more.
  constexpr size_t kUserTime = 14 - 3;
  constexpr size_t kSystemTime = 15 - 3;
  constexpr size_t kStartTime = 22 - 3;
  constexpr size_t kVirtualBytes = 23 - 3;
  constexpr size_t kResidentPages = 24 - 3;
  const std::vector<std::string> fields = StatFields();
  const auto ticks_per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  ProcessUsage usage;
  usage.resident_bytes = Number(fields, kResidentPages) *
                         static_cast<double>(sysconf(_SC_PAGESIZE));
  usage.virtual_bytes = Number(fields, kVirtualBytes);
  usage.cpu_seconds =
      (Number(fields, kUserTime) + Number(fields, kSystemTime)) /
      ticks_per_second;
  usage.start_time_seconds =
      BootTimeSeconds() + Number(fields, kStartTime) / ticks_per_second;
  usage.open_files = CountOpenFiles();
  if (rlimit limit{}; getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    usage.max_open_files = static_cast<double>(limit.rlim_cur);
  }
  return usage;
}

}  // namespace counterweight::server
