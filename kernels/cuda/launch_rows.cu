#include "kernels/cuda/launch_on_device.cuh"
//
#include "kernels/cuda/launch_rows.cuh"
