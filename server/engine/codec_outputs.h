// Which tensors a request wants back. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_OUTPUTS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_OUTPUTS_H_

#include "counterweight/v1/correction_service.pb.h"
#include "server/engine/codec.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// Fills decoded->outputs. has_method: decoded->spec is valid, so that outputs
// which it does not have can be refused.
void DecodeOutputs(const v1::CorrectRequest& request, bool has_method,
                   DecodedRequest* decoded, Violations* violations);

// Fills decoded->destinations. Reads decoded's outputs, num_positions and
// num_sequences.
void DecodeDestinations(const v1::CorrectRequest& request,
                        const PayloadSource& source, bool has_layout,
                        DecodedRequest* decoded, Violations* violations);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_OUTPUTS_H_
