// The shared-memory socket: packets as bytes, and arbitrary actions on one
// connection.
//
// Input: 0 and a packet, or another byte and the client's steps.
//
// Checks: a model of what is registered, released and refused; at the end no
// region is left.
#include <dirent.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "server/shared_memory/control.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/shared_memory_client.h"

namespace counterweight::fuzz {
namespace {

void CheckPacket(const std::string& bytes) {
  const std::vector<uint8_t> packet(bytes.begin(), bytes.end());
  server::ControlRequest request;
  if (server::ParseControlRequest(packet, &request).empty()) {
    Expect(PacketOf(request) == bytes, "a request is one packet, no other");
  }
}

size_t CountDescriptors() {
  size_t count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

void RunClient(bool has_many_bytes, Input* input) {
  const size_t descriptors_before = CountDescriptors();
  {
    SharedMemory shared(has_many_bytes);
    SharedMemoryClient client(&shared);
    while (input->remaining() > 0 && client.Step(input)) client.Check();
    client.Close();
  }
  // Threads that close what a client sent end a moment later.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (CountDescriptors() != descriptors_before &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  Expect(CountDescriptors() == descriptors_before, "no descriptor is leaked");
}

}  // namespace
}  // namespace counterweight::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  counterweight::fuzz::Input input(data, size);
  const uint8_t kind = input.TakeByte();
  if (kind == 0) {
    counterweight::fuzz::CheckPacket(input.TakeRest());
  } else {
    counterweight::fuzz::RunClient(kind % 2 == 0, &input);
  }
  return 0;
}
