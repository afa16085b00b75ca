// Makes the backend that the command line names.
#ifndef COUNTERWEIGHT_SERVER_BACKEND_H_
#define COUNTERWEIGHT_SERVER_BACKEND_H_

#include <memory>
#include <string>

#include "kernels/corrector.h"
#include "nlohmann/json_fwd.hpp"
#include "server/config/config.h"

namespace counterweight::server {

struct BackendChoice {
  // Null if what config.backend and config.devices name does not work here.
  std::unique_ptr<kernels::Corrector> corrector;
  // Why it is null, a sentence that names the flag; with the CPU that kAuto
  // took, why not CUDA. Else empty.
  std::string reason;
};

// kAuto takes CUDA if it works, else the CPU; but CUDA alone if the command
// line names devices.
BackendChoice MakeCorrector(const Config& config);

// The backend's name and devices, as a JSON object for the log.
nlohmann::ordered_json ToJson(const kernels::BackendInfo& backend);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_BACKEND_H_
