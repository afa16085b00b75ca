// A server that computes nothing: the transport's own ceiling.
#ifndef COUNTERWEIGHT_CLIENT_CPP_BENCH_ECHO_SERVER_H_
#define COUNTERWEIGHT_CLIENT_CPP_BENCH_ECHO_SERVER_H_

#include <string>

namespace counterweight::bench {

// Its methods Correct and CorrectStream speak the wire format of
// counterweight.v1.CorrectionService.
inline constexpr char kEchoService[] = "counterweight.bench.v1.Echo";

// Serves at `address` until stdin closes: takes a batch's bytes, copies them
// once into a pooled buffer, and answers with as many bytes as the real answer
// would have, in the same messages. Prints where it listens on stdout. Returns
// the exit code: 0, or 1 if it cannot listen.
int ServeEcho(const std::string& address);

}  // namespace counterweight::bench

#endif  // COUNTERWEIGHT_CLIENT_CPP_BENCH_ECHO_SERVER_H_
