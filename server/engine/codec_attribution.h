// Encodes the doctor's attribution of drift. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_ATTRIBUTION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_ATTRIBUTION_H_

#include "counterweight/v1/diagnosis.pb.h"
#include "kernels/doctor/attribution.h"

namespace counterweight::server {

void EncodeAttribution(const kernels::doctor::Attribution& attribution,
                       v1::Attribution* message);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_ATTRIBUTION_H_
