// A folder for one test's files.
#ifndef COUNTERWEIGHT_TESTS_SERVER_TEMPORARY_FOLDER_H_
#define COUNTERWEIGHT_TESTS_SERVER_TEMPORARY_FOLDER_H_

#include <cstdlib>
#include <filesystem>
#include <string>

namespace counterweight::server {

// A folder of mode 0700; removed with its content by the destructor.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = "/tmp/counterweight-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_TEMPORARY_FOLDER_H_
