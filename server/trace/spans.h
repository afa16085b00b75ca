// Requests as spans of OTLP.
#ifndef COUNTERWEIGHT_SERVER_TRACE_SPANS_H_
#define COUNTERWEIGHT_SERVER_TRACE_SPANS_H_

#include <chrono>

#include "opentelemetry/otlp.pb.h"
#include "server/log/request_log.h"

namespace counterweight::server {

// Appends the span of a request that ended at `end`, and a child for each of
// its stages. Attributes have the names of OpenTelemetry's conventions for RPCs
// where there is one, otherwise the prefix "counterweight.".
// REQUIRES: record.trace.
void AddSpans(const RequestRecord& record,
              std::chrono::steady_clock::time_point end,
              otlp::ScopeSpans* spans);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_TRACE_SPANS_H_
