// Headers and whole requests through the codec, the kernels and back.
//
// Input: a byte of Options, a CorrectRequest.
//
// Checks: violations are readable and fit into trailers; an accepted request
// computes and encodes, with 0 where the mask is 0.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "server/engine/codec.h"
#include "server/engine/codec_memory.h"
#include "tests/fuzz/header_options.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/laws.h"

namespace counterweight::fuzz {
namespace {

// Small limits, so that inputs reach them quickly.
constexpr server::RequestLimits kLimits{.max_tokens = 4096,
                                        .max_sequences = 256};

// Value of all bytes: 1 in a mask, a plausible log-prob elsewhere.
constexpr auto kMaskByte = std::byte{0x01};
constexpr auto kNumberByte = std::byte{0xbd};

// Memory of exactly the requested size, for sanitizers.
class Memory {
 public:
  explicit Memory(int64_t size)
      : bytes_(static_cast<std::byte*>(
            ::operator new(static_cast<size_t>(size), kAlignment))) {
    std::fill_n(bytes_, size, kNumberByte);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { ::operator delete(bytes_, kAlignment); }

  std::byte* data() const { return bytes_; }

 private:
  static constexpr std::align_val_t kAlignment{64};

  std::byte* const bytes_;
};

class FakeRegion final : public server::Region {
 public:
  explicit FakeRegion(server::RegionAccess access) : access_(access) {
    std::fill_n(memory_.data(), kSize, kMaskByte);
  }

  std::byte* data() const override { return memory_.data(); }
  int64_t size() const override { return kSize; }
  server::RegionAccess access() const override { return access_; }

 private:
  static constexpr int64_t kSize = 4096;

  const Memory memory_{kSize};
  const server::RegionAccess access_;
};

// Two regions: "r" to read and "w" to write.
class FakeRegions final : public server::Regions {
 public:
  std::shared_ptr<const server::Region> Find(
      std::string_view handle) const override {
    if (handle == "r") return read_;
    return handle == "w" ? write_ : nullptr;
  }

 private:
  const std::shared_ptr<const server::Region> read_ =
      std::make_shared<FakeRegion>(server::RegionAccess::kRead);
  const std::shared_ptr<const server::Region> write_ =
      std::make_shared<FakeRegion>(server::RegionAccess::kWrite);
};

void ExpectSizes(const v1::CorrectRequest& request, HeaderOptions options,
                 const server::Decoded& decoded) {
  Expect(decoded.layout.num_positions >= 0 &&
             decoded.layout.num_positions <= kLimits.max_tokens,
         "accepted requests keep the limits");
  Expect(static_cast<size_t>(request.tensors_size()) ==
             decoded.tensors.inputs.size(),
         "every tensor is an input");
  for (int i = 0; i < request.tensors_size(); ++i) {
    const server::InputTensor& input =
        decoded.tensors.inputs[static_cast<size_t>(i)];
    Expect(input.bytes == decoded.layout.num_positions * input.element_size,
           "an input has a number for each position");
    const v1::Tensor& tensor = request.tensors(i);
    if (options.is_stream || tensor.has_shared_memory()) continue;
    Expect(static_cast<int64_t>(tensor.data().size()) == input.bytes,
           "a tensor that is sent has all of its bytes, and no more");
  }
}

void CheckRequest(const v1::CorrectRequest& request, HeaderOptions options) {
  const FakeRegions regions;
  const server::Result<server::Decoded> result =
      server::Decode(request, kLimits,
                     {.is_stream = options.is_stream,
                      .regions = options.has_regions ? &regions : nullptr});
  ExpectReadable(result.violations);
  if (!result.ok()) return;
  const server::Decoded& decoded = result.value;
  ExpectValid(decoded.method.spec);
  ExpectSizes(request, options, decoded);
  const Memory inputs(server::InputBytes(decoded.tensors));
  kernels::Batch batch = server::BatchOf(decoded);
  if (options.is_stream) {
    const auto placed = server::PlaceInputs(inputs.data(), decoded);
    batch = placed.batch;
    for (const server::StreamTensor& tensor : placed.tensors) {
      std::fill_n(tensor.data, tensor.bytes,
                  tensor.is_mask ? kMaskByte : kNumberByte);
    }
  }
  const Memory mask(decoded.layout.num_positions);
  if (decoded.tensors.has_shared_mask) {
    std::memcpy(mask.data(), batch.response_mask,
                static_cast<size_t>(decoded.layout.num_positions));
    const server::Violations found =
        server::CheckMask(mask.data(), decoded.tensors);
    ExpectReadable(found);
    if (!found.empty()) return;
    batch.response_mask = reinterpret_cast<const uint8_t*>(mask.data());
  }
  v1::CorrectResponse response;
  ExpectComputes(decoded, batch, &response);
}

}  // namespace
}  // namespace counterweight::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  counterweight::fuzz::SilenceLibraries();
  if (size == 0) return 0;
  counterweight::v1::CorrectRequest request;
  if (!request.ParseFromArray(data + 1, static_cast<int>(size - 1))) return 0;
  counterweight::fuzz::CheckRequest(
      request, counterweight::fuzz::HeaderOptions(data[0]));
  return 0;
}
