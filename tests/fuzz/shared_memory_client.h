// A client of the shared-memory socket with arbitrary actions, and a model of
// the expected results.
#ifndef COUNTERWEIGHT_TESTS_FUZZ_SHARED_MEMORY_CLIENT_H_
#define COUNTERWEIGHT_TESTS_FUZZ_SHARED_MEMORY_CLIENT_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/shared_memory/connection.h"
#include "server/shared_memory/control.h"
#include "tests/fuzz/input.h"
#include "tests/server/fake_devices.h"

namespace counterweight::fuzz {

// The packet of a request, as proto/README.md gives it.
std::string PacketOf(const server::ControlRequest& request);

// State shared by all connections of a server.
struct SharedMemory {
  // has_many_bytes: a connection may have more than admission takes.
  explicit SharedMemory(bool has_many_bytes);

  server::FakeAllocation on_device;
  server::FakeDevices devices;
  std::atomic<int64_t> errors = 0;
  server::Admission admission;
  server::RequestLog log;
  server::RegionRegistry registry;
  server::WarningLimit warnings;
  server::Closer closer;
  server::ConnectionContext context;
};

// A file as a client might register it.
struct SharedFile {
  server::FileDescriptor descriptor;
  int64_t size = 0;  // bytes
  // It can be registered for reading or writing.
  bool is_good = false;
  bool is_writable = false;
};

// One client and its connection.
class SharedMemoryClient {
 public:
  // REQUIRES: *shared outlives this.
  explicit SharedMemoryClient(SharedMemory* shared);

  // Registers, releases, sends bytes, or leaves. False once the connection is
  // over.
  bool Step(Input* input);

  // Expects that registered regions are found, and limits kept.
  void Check() const;

  // Ends the connection and expects that nothing stays behind.
  void Close();

 private:
  struct Answer {
    bool is_ok = false;
    server::RegionHandle handle = {};
  };

  bool Register(Input* input);
  bool RegisterDevice(Input* input);
  bool RegisterParts(Input* input);
  bool IsWelcome(const SharedFile& file,
                 const server::ControlRequest& request) const;
  void ExpectMapped(const Answer& answer, server::RegionAccess access) const;
  bool Release(Input* input);
  bool SendAnything(Input* input);
  // Sends a packet, lets the connection take it, reads the answer. False if the
  // connection ends with it.
  bool Exchange(const std::string& packet, const std::vector<int>& descriptors,
                Answer* answer);
  void Send(const std::string& packet, const std::vector<int>& descriptors);

  SharedMemory* const shared_;
  server::FileDescriptor own_;
  std::unique_ptr<server::Connection> connection_;
  std::map<server::RegionHandle, int64_t> regions_;  // sizes in bytes
};

}  // namespace counterweight::fuzz

#endif  // COUNTERWEIGHT_TESTS_FUZZ_SHARED_MEMORY_CLIENT_H_
