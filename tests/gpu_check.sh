#!/usr/bin/env bash
# Proves the CUDA backend on this machine: builds the kernels, compares their bytes with the CPU backend's on random
# batches of every method, and times them against the device's measured copy bandwidth.
#
# Needs CMake, a C++20 compiler, the CUDA toolkit (nvcc on PATH, or CUDACXX) and a GPU; nothing else. Arguments go to
# the check: --quick leaves out the largest batches and the timing. GPU_CHECK_BUILD names the build folder.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${GPU_CHECK_BUILD:-build/gpu-check}
if ! command -v "${CUDACXX:-nvcc}" >/dev/null; then
  echo "gpu_check: no CUDA compiler; put nvcc on PATH or name it in CUDACXX" >&2
  exit 2
fi
mkdir -p "$build"
# Without a driver there is no native architecture to ask for; the check then builds for sm_90 and says it has no GPU.
architecture=90
[ -e /dev/nvidiactl ] && architecture=native
echo "gpu_check: building into $build"
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCOUNTERWEIGHT_CUDA=ON -DCOUNTERWEIGHT_BUILD_SERVER=OFF \
  -DCOUNTERWEIGHT_BUILD_TESTS=OFF -DCMAKE_CUDA_ARCHITECTURES="${CUDA_ARCHITECTURES:-$architecture}" >"$build.log" 2>&1 ||
  { cat "$build.log" >&2; echo "gpu_check: CMake failed" >&2; exit 2; }
cmake --build "$build" --target gpu_check --parallel "$(nproc)"
echo "gpu_check: commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%Y-%m-%d)"
exec "$build/tests/gpu_check/gpu_check" "$@"
