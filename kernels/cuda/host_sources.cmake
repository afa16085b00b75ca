# The backend's host code, for the real runtime and for the fake one of tests/kernels/cuda_on_cpu.
set(counterweight_cuda_host_sources
    batch_blocks.cc
    batch_on_device.cc
    bounce_ring.cc
    column_layout.cc
    cuda_corrector.cc
    cuda_run.cc
    cuda_run_caller.cc
    cuda_run_walks.cc
    device_count.cc
    device_memory.cc
    device_pool.cc
    device_share.cc
    driver.cc
    ipc_memory.cc
    part_memory.cc
    pipe.cc
    placement.cc
    prepare_kernels.cc
    probe.cc
    shapes.cc
    wait.cc)
list(TRANSFORM counterweight_cuda_host_sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
