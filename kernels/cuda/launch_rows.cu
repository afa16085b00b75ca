#include "kernels/cuda/launch_rows.cuh"
