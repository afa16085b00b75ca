// SIGHUP: the configuration is read again.
#ifndef COUNTERWEIGHT_SERVER_RELOAD_H_
#define COUNTERWEIGHT_SERVER_RELOAD_H_

#include <string>
#include <vector>

#include "server/config/command_line.h"
#include "server/config/config.h"
#include "server/log/request_log.h"
#include "server/server.h"
#include "spdlog/logger.h"

namespace counterweight::server {

// Applies a configuration that was read again to a running server.
struct Reload {
  // The running configuration with the reloadable values of the new one.
  Config config;
  std::vector<std::string> changed;        // flags that differ in `config`
  std::vector<std::string> needs_restart;  // flags that differ elsewhere
  // A sentence, if `config` is not valid; nothing is to change then.
  std::string error;
};
Reload PlanReload(const Config& running, const Config& loaded);

// Applies the new configuration to *running, *server and *logger, or, if it has
// an error, nothing; either is one line of *log, and the server's gauge.
void ApplyReload(const CommandLine& loaded, Config* running, Server* server,
                 spdlog::logger* logger, RequestLog* log);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_RELOAD_H_
