// counterweight-bench: loads a server with batches and measures it.
#include <cstdio>
#include <exception>
#include <optional>

#include "client/cpp/bench/echo_server.h"
#include "client/cpp/bench/run.h"
#include "client/cpp/bench/settings.h"

int main(int argc, char** argv) try {
  counterweight::bench::Settings settings;
  const std::optional<int> exit_code =
      counterweight::bench::ParseCommandLine(argc, argv, &settings);
  if (exit_code) return *exit_code;
  return settings.serve_echo ? counterweight::bench::ServeEcho(settings.target)
                             : counterweight::bench::Run(settings);
} catch (const std::exception& error) {
  std::fprintf(stderr, "counterweight-bench: %s\n", error.what());
  return 1;
}
