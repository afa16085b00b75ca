// One run of the load tool.
#ifndef COUNTERWEIGHT_CLIENT_CPP_BENCH_RUN_H_
#define COUNTERWEIGHT_CLIENT_CPP_BENCH_RUN_H_

#include "client/cpp/bench/settings.h"

namespace counterweight::bench {

// Makes the batch, checks that one call works, loads the server and prints the
// report on stdout. Returns the exit code: 0, or 1 if a call failed, after its
// error on stderr.
int Run(Settings settings);

}  // namespace counterweight::bench

#endif  // COUNTERWEIGHT_CLIENT_CPP_BENCH_RUN_H_
