#include "tests/kernels/cuda_on_cpu/launch_on_cpu.h"
//
#include "kernels/cuda/launch_statistics.cu"
