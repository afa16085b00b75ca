// Hardware queues of a GPU.
#ifndef COUNTERWEIGHT_SERVER_DEVICE_QUEUES_H_
#define COUNTERWEIGHT_SERVER_DEVICE_QUEUES_H_

namespace counterweight::server {

// Starts this program anew, with the same arguments and process ID, so that
// CUDA gives streams 32 hardware queues instead of 8: with those a small
// request's kernels would wait for a large request's stream. CUDA
// reads CUDA_DEVICE_MAX_CONNECTIONS before main(), so that it must be there
// when the program starts. Returns if it is, whatever its value, or if the
// program cannot be started again. Before there are threads, files or output.
void WidenDeviceQueues();

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_DEVICE_QUEUES_H_
