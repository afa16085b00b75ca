// The section of kernels/METHODS.md about group baselines.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_GROUPS_REFERENCE_H_
#define COUNTERWEIGHT_SERVER_ENGINE_GROUPS_REFERENCE_H_

#include <string>

namespace counterweight::server {

std::string GroupBaselines();

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_GROUPS_REFERENCE_H_
