#include "server/call/stream_answer.h"

#include <cstddef>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

// gRPC reads a frame's bytes when it sends them, perhaps after the stream has
// ended.
TEST(StreamAnswer, AFrameKeepsTheMemoryThatItPointsInto) {
  auto memory = std::make_shared<std::vector<std::byte>>(1000);
  const std::weak_ptr<void> is_alive = memory;
  grpc::ByteBuffer chunk;
  {
    StreamAnswer answer;
    answer.AddOutput(memory->data(), 1000);
    v1::CorrectResponse result;
    answer.Begin(std::move(memory), &result, {});
    bool is_over = false;
    grpc::ByteBuffer frame;
    ASSERT_TRUE(answer.Next(&frame, &is_over).ok());
    ASSERT_TRUE(answer.Next(&chunk, &is_over).ok());
    EXPECT_GT(chunk.Length(), 1000U);
  }
  EXPECT_FALSE(is_alive.expired());
  chunk.Clear();
  EXPECT_TRUE(is_alive.expired());
}

}  // namespace
}  // namespace counterweight::server
