// One request's span and those of its stages.
#ifndef COUNTERWEIGHT_SERVER_LOG_TRACE_H_
#define COUNTERWEIGHT_SERVER_LOG_TRACE_H_

#include <chrono>
#include <optional>
#include <string_view>
#include <vector>

#include "server/log/traceparent.h"

namespace counterweight::server {

struct StageSpan {
  std::string_view name;  // "decode"; of static storage
  std::chrono::steady_clock::time_point start;
  std::chrono::steady_clock::time_point end;
};

// Not thread-safe.
struct Trace {
  TraceId trace_id;
  std::optional<SpanId> parent_id;  // the caller's span, if there is one
  bool is_sampled = false;
  // The beginning of the request on both clocks.
  std::chrono::system_clock::time_point start;
  std::chrono::steady_clock::time_point steady_start;
  std::vector<StageSpan> stages;  // only if is_sampled
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_LOG_TRACE_H_
