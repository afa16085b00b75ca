// A trainer in this process: its arrays on a fake device, written and read in
// its own stream without a wait of the host.
#ifndef COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_TRAINER_H_
#define COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_TRAINER_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace counterweight::kernels {

// Ends the program where CUDA fails.
class Trainer {
 public:
  // `has_stream`: one of its own, else the default one.
  explicit Trainer(int device = 0, bool has_stream = true);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  cudaStream_t stream() const { return stream_; }

  // Puts a copy of `bytes` on the device into the stream. The array holds
  // garbage until the stream reaches it.
  void* Send(const void* bytes, size_t size);
  // An array of garbage.
  void* Allocate(size_t size);
  // Puts garbage over all that was sent into the stream, as if the memory had
  // other uses now.
  void Overwrite();
  // Puts a copy to the host into the stream; Wait() completes it.
  void Receive(const void* array, void* to, size_t size);
  void Wait();

  // True if the byte belongs to an array.
  bool Owns(const void* byte) const;

 private:
  struct Array {
    char* device;
    char* staged;  // pinned
    size_t size;
    void* to = nullptr;  // what Receive fills
  };
  Array* Find(const void* array);

  const int device_;
  cudaStream_t stream_ = nullptr;
  std::vector<Array> arrays_;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_TRAINER_H_
