#include "server/engine/stream_batch.h"

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two rows of two and three positions: a float tensor and the mask.
class StreamBatchTest : public ::testing::Test {
 protected:
  StreamBatchTest() { memory_.fill(std::byte{0xee}); }

  // Returns the violation's field; empty if there is none.
  std::string Take(uint32_t tensor, uint64_t offset, const std::string& data) {
    const Violations violations = Violated(tensor, offset, data);
    return violations.empty() ? "" : violations.front().field;
  }

  Violations Violated(uint32_t tensor, uint64_t offset,
                      const std::string& data) {
    const std::span<const uint8_t> piece(
        reinterpret_cast<const uint8_t*>(data.data()), data.size());
    const std::span<const uint8_t> pieces[] = {piece};
    return batch_.Take({tensor, offset, wire::WireReader(pieces)});
  }

  const std::vector<int64_t> offsets_ = {0, 2, 5};
  std::array<std::byte, 32> memory_{};
  StreamBatch batch_{
      {{memory_.data(), 20, 4, false}, {memory_.data() + 24, 5, 1, true}},
      offsets_};
};

TEST_F(StreamBatchTest, RowsArriveWhenAllTensorsHaveThem) {
  EXPECT_EQ(batch_.missing_bytes(), 25);
  EXPECT_EQ(Take(0, 0, "abcdefg"), "");  // inside an element
  EXPECT_EQ(batch_.rows(), 0);
  EXPECT_EQ(Take(1, 0, std::string("\1\0", 2)), "");
  EXPECT_EQ(batch_.rows(), 0);
  EXPECT_EQ(Take(0, 7, "h"), "");
  EXPECT_EQ(batch_.rows(), 1);
  EXPECT_FALSE(batch_.has_mask());
  EXPECT_EQ(Take(1, 2, std::string("\1\1\1", 3)), "");
  EXPECT_TRUE(batch_.has_mask());
  EXPECT_FALSE(batch_.IsWhole());
  EXPECT_EQ(Take(0, 8, "ijklmnopqrst"), "");
  EXPECT_EQ(batch_.rows(), 2);
  EXPECT_TRUE(batch_.IsWhole());
  EXPECT_EQ(std::memcmp(memory_.data(), "abcdefghijklmnopqrst", 20), 0);
}

TEST_F(StreamBatchTest, AChunkContinuesItsTensor) {
  EXPECT_EQ(Take(2, 0, "x"), "chunk.tensor");
  EXPECT_EQ(Take(0, 1, "x"), "chunk.offset");
  EXPECT_EQ(Take(0, 0, "abcd"), "");
  EXPECT_EQ(Take(0, 0, "abcd"), "chunk.offset");
  EXPECT_EQ(Take(0, UINT64_MAX, "abcd"), "chunk.offset");
  EXPECT_EQ(Take(0, 4, std::string(17, 'x')), "chunk.data");
  EXPECT_EQ(memory_[20], std::byte{0xee}) << "nothing lands behind a tensor";
  EXPECT_EQ(Take(0, 4, ""), "") << "an empty chunk is one";
}

TEST_F(StreamBatchTest, AMaskHoldsZeroAndOne) {
  EXPECT_EQ(Take(1, 0, std::string("\1", 1)), "");
  const Violations violations = Violated(1, 1, std::string("\0\2", 2));
  ASSERT_EQ(violations.size(), 1U);
  EXPECT_EQ(violations[0].field, "tensors[1].data");
  // Counted from the beginning of the mask, not of the chunk.
  EXPECT_THAT(violations[0].description, HasSubstr("position 2 holds 2"));
}

TEST_F(StreamBatchTest, NamesWhatIsMissing) {
  EXPECT_EQ(Take(0, 0, std::string(20, 'x')), "");
  EXPECT_EQ(Take(1, 0, std::string("\1", 1)), "");
  EXPECT_EQ(batch_.Missing().field, "tensors[1].data");
  EXPECT_THAT(batch_.Missing().description, HasSubstr("1 of 5"));
}

TEST(StreamBatch, WithoutPositionsIsWhole) {
  const std::vector<int64_t> offsets = {0, 0, 0};
  const StreamBatch batch({{nullptr, 0, 4, false}, {nullptr, 0, 1, true}},
                          offsets);
  EXPECT_TRUE(batch.IsWhole());
}

}  // namespace
}  // namespace counterweight::server
