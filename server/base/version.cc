// In a file of its own because the definitions change with every commit.
#include "server/base/version.h"

namespace counterweight::server {

const char* Version() { return COUNTERWEIGHT_VERSION; }

const char* Revision() { return COUNTERWEIGHT_REVISION; }

}  // namespace counterweight::server
