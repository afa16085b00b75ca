// What to compute. v1::Method says it all; these write the common cases.
#ifndef COUNTERWEIGHT_CLIENT_CPP_METHOD_H_
#define COUNTERWEIGHT_CLIENT_CPP_METHOD_H_

#include <map>
#include <string>
#include <string_view>

#include "client/cpp/status.h"
#include "counterweight/v1/method.pb.h"

namespace counterweight::client {

// A row of the methods table, with other numbers than its defaults where named.
// The server knows the names, units and ranges (Client::ListMethods).
v1::Method Preset(std::string_view name,
                  const std::map<std::string, double>& parameters = {});

// Another system's own configuration block ("verl", "trl", "skyrl",
// "openrlhf"), as a JSON object; empty text: the system's defaults.
// `release`: whose numbers are wanted, "0.9.1"; empty: the newest that the
// server knows (v1::Dialect.release). kInvalidArgument if the block is not a
// JSON object; what it says is the server's to check.
Status Dialect(std::string_view system, std::string_view block_json,
               v1::Method* method, std::string_view release = "");

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_METHOD_H_
