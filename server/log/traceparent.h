// The trace that a request belongs to, by W3C Trace Context.
#ifndef COUNTERWEIGHT_SERVER_LOG_TRACEPARENT_H_
#define COUNTERWEIGHT_SERVER_LOG_TRACEPARENT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace counterweight::server {

// The metadata's key.
inline constexpr char kTraceparentKey[] = "traceparent";

using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;

// The content of "traceparent", such as
// "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".
struct Traceparent {
  TraceId trace_id;
  SpanId parent_id;  // the caller's span
  bool is_sampled;
};

// Returns nothing if `text` is no valid traceparent; its caller then begins a
// trace (www.w3.org/TR/trace-context, section 3.2).
std::optional<Traceparent> ParseTraceparent(std::string_view text);

// Lower-case hexadecimal digits.
std::string ToHex(const TraceId& id);

// Random, never all zero. Thread-safe.
TraceId MakeTraceId();
SpanId MakeSpanId();

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_LOG_TRACEPARENT_H_
