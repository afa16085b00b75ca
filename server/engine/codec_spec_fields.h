// What the kernels refuse, by the fields that callers wrote: the only map from
// a kernels' field to a path in a request. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_SPEC_FIELDS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_SPEC_FIELDS_H_

#include "kernels/spec.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// A config has a field for each of the spec's.
Violation ToConfigViolation(const kernels::SpecViolation& violation);

// A preset's parameters make weights and rules together; a loss is sent beside
// them.
Violation ToPresetViolation(const kernels::SpecViolation& violation);

// A block has other words for everything.
Violation ToDialectViolation(const kernels::SpecViolation& violation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_SPEC_FIELDS_H_
