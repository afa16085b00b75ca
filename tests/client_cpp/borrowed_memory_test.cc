// The caller's memory stays lent until gRPC has released it.
#include "client/cpp/transport/borrowed_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace counterweight::client {
namespace {

TEST(BorrowedMemory, EndsOnlyWhenEverySliceIsGone) {
  const std::string bytes(10000, 'x');
  std::optional<BorrowedMemory> memory(std::in_place);
  std::vector<grpc::Slice> slices = {memory->Lend(bytes.data(), bytes.size()),
                                     memory->Lend(bytes.data(), 5000)};
  // gRPC passes parts and copies on.
  slices.push_back(slices[0]);
  EXPECT_EQ(slices[0].begin(),
            reinterpret_cast<const uint8_t*>(bytes.data()));  // not a copy
  std::atomic<bool> last_is_gone = false;
  std::atomic<bool> ended = false;
  bool was_gone_at_end = false;
  std::jthread owner([&] {
    memory.reset();
    was_gone_at_end = last_is_gone;
    ended = true;
  });
  slices.erase(slices.begin(), slices.begin() + 2);
  // A destructor that does not wait returns within this time, or is missed: the
  // test cannot fail for being slow.
  const auto patience =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (!ended && std::chrono::steady_clock::now() < patience) {
    std::this_thread::yield();
  }
  last_is_gone = true;
  slices.clear();
  owner.join();
  EXPECT_TRUE(was_gone_at_end);
}

TEST(BorrowedMemory, ThatLentNothingEndsAtOnce) {
  { const BorrowedMemory memory; }
  BorrowedMemory memory;
  const std::string bytes(10000, 'x');
  { const grpc::Slice slice = memory.Lend(bytes.data(), bytes.size()); }
}

}  // namespace
}  // namespace counterweight::client
