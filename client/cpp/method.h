// Constructors for the common cases of v1::Method, which can express every
// method.
#ifndef COUNTERWEIGHT_CLIENT_CPP_METHOD_H_
#define COUNTERWEIGHT_CLIENT_CPP_METHOD_H_

#include <map>
#include <string>
#include <string_view>

#include "client/cpp/status.h"
#include "counterweight/v1/method.pb.h"

namespace counterweight::client {

// A row of the methods table; `parameters` replace its defaults. The server
// lists names, units and ranges (Client::ListMethods).
v1::Method Preset(std::string_view name,
                  const std::map<std::string, double>& parameters = {});

// Another system's own configuration block ("verl", "trl", "skyrl", "openrlhf",
// "slime", "miles", "nemo_rl", "ms_swift", "prime_rl", "areal", "roll",
// "tinker") as a JSON object; empty text means the system's defaults. `release`
// selects the release to reproduce, "0.9.1"; empty means the newest that the
// server knows (v1::Dialect.release). kInvalidArgument if the block is not a
// JSON object; the server checks its fields.
Status Dialect(std::string_view system, std::string_view block_json,
               v1::Method* method, std::string_view release = "");

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_METHOD_H_
