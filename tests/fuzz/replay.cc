// Runs a fuzz target over files without libFuzzer, so that every compiler tests
// known findings.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/input.h"

namespace counterweight::fuzz {
namespace {

// `path` itself, or all files in it, sorted.
std::vector<std::filesystem::path> FilesOf(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool Replay(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "replay: cannot read %s\n", path.c_str());
    return false;
  }
  const std::string bytes{std::istreambuf_iterator<char>(file),
                          std::istreambuf_iterator<char>()};
  // The last line names the input that ended the process.
  std::printf("%s\n", path.c_str());
  std::fflush(stdout);
  // A copy of the exact size, so that a sanitizer detects a read past its end.
  const std::vector<uint8_t> copy(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
  return true;
}

int Run(int count, char** arguments) {
  size_t replayed = 0;
  for (int i = 1; i < count; ++i) {
    for (const std::filesystem::path& file : FilesOf(arguments[i])) {
      if (!Replay(file)) return 1;
      ++replayed;
    }
  }
  std::printf("replayed %zu inputs\n", replayed);
  if (replayed > 0) return 0;
  std::fprintf(stderr, "replay: no inputs; name files or folders of them\n");
  return 1;
}

}  // namespace
}  // namespace counterweight::fuzz

int main(int argc, char** argv) { return counterweight::fuzz::Run(argc, argv); }
