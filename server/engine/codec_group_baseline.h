// Advantages of groups, from a request. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_GROUP_BASELINE_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_GROUP_BASELINE_H_

#include "counterweight/v1/correction_service.pb.h"
#include "counterweight/v1/group_baseline.pb.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// Answers GroupAdvantages.
Violations GroupAdvantages(const v1::GroupAdvantagesRequest& request,
                           v1::GroupAdvantagesResponse* response);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_GROUP_BASELINE_H_
