"""A wall clock that is set while the server runs: deadlines are not the wall clock's."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import counterweight_rl as cw
import pytest
from batches import padded_batch
from preloads import preload
from server_process import ServerProcess

pytestmark = [pytest.mark.server_only, pytest.mark.usefixtures("patient")]

# Each look of ours at the wall clock finds it an hour on, an hour back, or right; gRPC's own looks
# are left alone.
JUMPS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec* now) {
  static atomic_uint looks;
  static int (*_Atomic real)(clockid_t, struct timespec*);
  if (!real) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  const int failed = real(clock, now);
  Dl_info caller;
  // std::chrono::system_clock::now() is there.
  const int is_ours = clock == CLOCK_REALTIME && dladdr(__builtin_return_address(0), &caller) &&
                      strstr(caller.dli_fname, "libstdc++") != 0;
  if (is_ours) now->tv_sec += 3600 * ((int)(looks++ % 3) - 1);
  return failed;
}
"""


@pytest.mark.parametrize("transport", ["unary", "stream"])
def test_calls_are_answered_whatever_the_wall_clock_says(
    start_server: Callable[..., ServerProcess],
    tmp_path: pathlib.Path,
    transport: cw.Transport,
) -> None:
    # With one place, calls also wait for admission. The hour that the wall clock jumps is more than every limit.
    server = start_server(
        "--max_requests_in_flight=1",
        "--stream_timeout=60",
        "--unary_timeout=60",
        "--max_queue_seconds=60",
        environment=preload(JUMPS, tmp_path),
    )
    with cw.Client(server.address, transport=transport, retry=False, timeout=60) as client:
        for _ in range(10):
            pending = [client.submit(method="token_tis", **padded_batch()) for _ in range(20)]
            for each in pending:
                assert each.result().metrics
    server.terminate()
    assert server.wait() == 0
