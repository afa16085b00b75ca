// The calls of the C ABI, without its checks of pointers.
#ifndef COUNTERWEIGHT_SERVER_EMBEDDED_CALLS_H_
#define COUNTERWEIGHT_SERVER_EMBEDDED_CALLS_H_

#include <cstdint>
#include <memory>
#include <span>

#include "server/embedded/answer.h"
#include "server/embedded/counterweight.h"
#include "server/embedded/engine.h"
#include "server/embedded/failure.h"

namespace counterweight::embedded {

// Implement the functions of counterweight.h of these names. They may throw
// std::bad_alloc and protobuf's exceptions.
Failure Correct(const std::shared_ptr<Engine>& engine,
                const cw_request& request, Answer* answer);
Failure Validate(Engine* engine, const cw_request& request, Answer* answer);
Failure Diagnose(Engine* engine, const cw_request& request, Answer* answer);
Failure Sums(int32_t format, Answer* answer);
// parts: of cw_merge_arrays, else empty.
Failure Merge(cw_bytes request, int32_t format,
              std::span<const cw_partial> parts, Answer* answer);
Failure DeclareRun(Engine* engine, cw_bytes request, int32_t format,
                   Answer* answer);
Failure GroupAdvantages(cw_bytes request, int32_t format, Answer* answer);
Failure ListMethods(int32_t format, Answer* answer);
Failure ServerInfo(Engine* engine, int32_t format, Answer* answer);

}  // namespace counterweight::embedded

#endif  // COUNTERWEIGHT_SERVER_EMBEDDED_CALLS_H_
