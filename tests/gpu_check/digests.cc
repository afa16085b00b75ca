#include "tests/gpu_check/digests.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/gpu_check/case_runs.h"

namespace counterweight::kernels {
namespace {

// G. Fowler, L. C. Noll, K.-P. Vo (1991).
class Fnv1a {
 public:
  void Add(const void* data, size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) {
      hash_ = (hash_ ^ at[i]) * 0x100000001b3;
    }
  }
  template <class T>
  void Add(const T& value) {
    static_assert(std::has_unique_object_representations_v<T>);
    Add(&value, sizeof(value));
  }
  template <class T>
  void Add(const std::vector<T>& values) {
    Add(values.data(), values.size() * sizeof(T));
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

uint64_t DigestOf(const OwnedBatch& owned) {
  const Batch batch = owned.view();
  const auto positions = static_cast<size_t>(owned.num_positions());
  Fnv1a digest;
  for (const TensorView& tensor : batch.tensors) {
    if (tensor.data == nullptr) continue;
    digest.Add(tensor.data,
               positions * static_cast<size_t>(SizeOf(tensor.dtype)));
  }
  digest.Add(batch.response_mask, positions);
  return digest.hash();
}

uint64_t DigestOf(const Corrected& answer) {
  Fnv1a digest;
  digest.Add(answer.result.status);
  if (answer.result.status == CorrectStatus::kNonFinite) {
    const NonFinite& found = answer.result.non_finite;
    digest.Add(found.role);
    digest.Add(found.sequence);
    digest.Add(found.token);
    digest.Add(found.input);
    return digest.hash();
  }
  digest.Add(answer.weights);
  digest.Add(answer.keep_mask);
  digest.Add(answer.token_reasons);
  digest.Add(answer.gradient);
  digest.Add(answer.sequence_reasons);
  // It has only 8-byte members, so there is no padding.
  digest.Add(&answer.sums(), sizeof(BatchSums));
  return digest.hash();
}

}  // namespace

int WriteDigests(Corrector& corrector, CheckSize size, int sample,
                 std::FILE* file) {
  int lines = 0;
  uint64_t index = 0;
  for (const std::vector<int64_t>& lengths : CheckShapes(size)) {
    for (uint64_t round = 0; round < kRoundsOfDTypes; ++round) {
      for (const CheckCase& c : CheckCases(lengths, round)) {
        if (++index % static_cast<uint64_t>(sample) != 0) continue;
        const int written = std::fprintf(
            file, "%016llx %016llx %zu rows, round %llu: %s\n",
            static_cast<unsigned long long>(DigestOf(*c.batch)),
            static_cast<unsigned long long>(DigestOf(RunWhole(corrector, c))),
            lengths.size(), static_cast<unsigned long long>(round),
            c.name.c_str());
        if (written < 0) return -1;
        ++lines;
      }
    }
  }
  return std::fflush(file) == 0 ? lines : -1;
}

}  // namespace counterweight::kernels
