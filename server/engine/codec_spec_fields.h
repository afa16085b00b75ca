// Maps violations of the kernels to paths in a request; the only such map. Part
// of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_SPEC_FIELDS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_SPEC_FIELDS_H_

#include "kernels/spec.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// For configs, which have a field for each of the spec's.
Violation ToConfigViolation(const kernels::SpecViolation& violation);

// For presets: their parameters determine weights and rules together; a loss is
// sent beside them.
Violation ToPresetViolation(const kernels::SpecViolation& violation);

// For dialects: their blocks have other fields.
Violation ToDialectViolation(const kernels::SpecViolation& violation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_SPEC_FIELDS_H_
