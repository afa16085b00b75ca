// A shared-memory listener in this process, and its resources.
#ifndef COUNTERWEIGHT_TESTS_SERVER_SHARED_MEMORY_RUNNING_LISTENER_H_
#define COUNTERWEIGHT_TESTS_SERVER_SHARED_MEMORY_RUNNING_LISTENER_H_

#include <cstdint>
#include <memory>
#include <sstream>
#include <string>

#include "server/call/admission.h"
#include "server/log/request_log.h"
#include "server/shared_memory/listener.h"
#include "tests/server/shared_memory/shared_memory_client.h"
#include "tests/server/temporary_folder.h"

namespace counterweight::server {

inline constexpr int64_t kMebibyte = int64_t{1} << 20;

// Default limits of a test's listener.
SharedMemoryListener::Options TestOptions();

// Throws if the listener cannot start.
class RunningListener {
 public:
  // `options.path` is chosen here.
  explicit RunningListener(
      SharedMemoryListener::Options options = TestOptions(),
      int64_t max_bytes_in_flight = 64 * kMebibyte);

  SharedMemoryListener& listener() { return *listener_; }
  Admission& admission() { return admission_; }
  const std::string& path() const { return path_; }
  const TemporaryFolder& folder() const { return folder_; }

  // Returns when the resources of connections closed before are released: the
  // server handles ends before newer events.
  void Settle() { SharedMemoryClient(path_).Finish(); }

  // Ends the listener, before its admission.
  void Stop() { listener_.reset(); }

  // All log lines. REQUIRES: the listener writes none, as after Settle.
  std::string Log() const { return log_text_.str(); }

 private:
  const TemporaryFolder folder_;
  const std::string path_ = folder_.File("memory.sock");
  std::ostringstream log_text_;
  RequestLog log_;
  Admission admission_;
  std::unique_ptr<SharedMemoryListener> listener_;
};

// Number of this process's descriptors.
int CountDescriptors();

// Waits until it has at most `count` descriptors, which a thread may still be
// closing (see Closer); returns their number then, or after a minute.
int WaitForDescriptors(int count);

// Lines of /proc/self/maps that name files of MakeMemfd.
int CountMemfdMappings();

// Permissions such as "r--s" of the mapping that begins at `data`; empty if
// there is none.
std::string PermissionsOf(const void* data);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_SHARED_MEMORY_RUNNING_LISTENER_H_
