// The configuration while the server runs: SIGHUP changes a part of it.
#ifndef COUNTERWEIGHT_SERVER_CONFIG_CURRENT_CONFIG_H_
#define COUNTERWEIGHT_SERVER_CONFIG_CURRENT_CONFIG_H_

#include <memory>
#include <mutex>

#include "server/config/config.h"

namespace counterweight::server {

// Thread-safe.
class CurrentConfig {
 public:
  explicit CurrentConfig(const Config& config) { Set(config); }

  // As it is now; stays as it is for those who hold it.
  std::shared_ptr<const Config> Get() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return config_;
  }

  void Set(const Config& config) {
    auto next = std::make_shared<const Config>(config);
    const std::lock_guard<std::mutex> lock(mutex_);
    config_.swap(next);
  }

 private:
  mutable std::mutex mutex_;  // guards config_
  std::shared_ptr<const Config> config_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CONFIG_CURRENT_CONFIG_H_
