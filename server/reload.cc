#include "server/reload.h"

#include <algorithm>
#include <utility>

#include "nlohmann/json.hpp"
#include "server/config/flags.h"

namespace counterweight::server {

Reload PlanReload(const Config& running, const Config& loaded) {
  Reload reload;
  reload.config = running;
  for (const Flag& flag : Flags()) {
    const std::string value = flag.get(loaded);
    if (value == flag.get(running)) continue;
    if (!flag.is_reloadable()) {
      reload.needs_restart.emplace_back(flag.name);
      continue;
    }
    reload.changed.emplace_back(flag.name);
    flag.set(value, &reload.config);
  }
  reload.error = Validate(reload.config);
  if (!reload.error.empty()) {
    reload.error += "; other flags of this change need a restart";
  }
  return reload;
}

void ApplyReload(const CommandLine& loaded, Config* running, Server* server,
                 spdlog::logger* logger, RequestLog* log) {
  Reload reload = PlanReload(*running, loaded.config);
  if (!loaded.error.empty()) reload.error = loaded.error;
  server->ReportReload(reload.error.empty());
  if (!reload.error.empty()) {
    log->Event(spdlog::level::err, "config_reload_failed",
               {{"error", reload.error}});
    return;
  }
  nlohmann::ordered_json changed = nlohmann::ordered_json::object();
  for (const std::string& name : reload.changed) {
    changed[name] = FindFlag(name)->get(reload.config);
  }
  *running = reload.config;
  server->SetConfig(reload.config);
  // The line is due at either level.
  const auto level = spdlog::level::from_str(reload.config.log_level);
  logger->set_level(std::min(level, logger->level()));
  log->Event(
      reload.needs_restart.empty() ? spdlog::level::info : spdlog::level::warn,
      "config_reloaded",
      {{"changed", std::move(changed)},
       {"needs_restart", reload.needs_restart}});
  logger->set_level(level);
}

}  // namespace counterweight::server
