// A process with memory on the fake device: ipc_client BYTES. It fills an
// allocation with positions modulo 251, prints its handle in hexadecimal, waits
// for a line on its input, and prints the sum of the content then.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const size_t size = std::strtoull(argv[1], nullptr, 10);
  std::vector<unsigned char> bytes(size);
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<unsigned char>(i % 251);
  }
  void* memory = nullptr;
  cudaIpcMemHandle_t handle{};
  if (cudaMalloc(&memory, size) != cudaSuccess ||
      cudaMemcpy(memory, bytes.data(), size, cudaMemcpyHostToDevice) !=
          cudaSuccess ||
      cudaIpcGetMemHandle(&handle, memory) != cudaSuccess) {
    return 1;
  }
  for (const char byte : handle.reserved) {
    std::printf("%02x", static_cast<unsigned char>(byte));
  }
  std::printf("\n");
  std::fflush(stdout);
  if (std::getchar() == EOF) return 1;
  if (cudaMemcpy(bytes.data(), memory, size, cudaMemcpyDeviceToHost) !=
      cudaSuccess) {
    return 1;
  }
  unsigned long long sum = 0;
  for (const unsigned char byte : bytes) sum += byte;
  std::printf("%llu\n", sum);
  return 0;
}
