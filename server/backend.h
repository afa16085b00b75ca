// From the command line to a backend.
#ifndef COUNTERWEIGHT_SERVER_BACKEND_H_
#define COUNTERWEIGHT_SERVER_BACKEND_H_

#include <memory>
#include <string>

#include "kernels/corrector.h"
#include "server/config.h"

namespace counterweight::server {

// The backend that config.backend names; kAuto falls back to the CPU. Null, and
// *error a sentence, if it does not work here.
std::unique_ptr<kernels::Corrector> MakeCorrector(const Config& config,
                                                  std::string* error);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_BACKEND_H_
