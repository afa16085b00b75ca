// Version and revision of the build.
#ifndef COUNTERWEIGHT_SERVER_BASE_VERSION_H_
#define COUNTERWEIGHT_SERVER_BASE_VERSION_H_

namespace counterweight::server {

// Semantic version, "0.1.0".
const char* Version();

// Source revision, or "unknown".
const char* Revision();

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_BASE_VERSION_H_
