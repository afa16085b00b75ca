// OpenRLHF's PolicyLoss and the KL loss beside it, as of
// OpenRLHF/OpenRLHF @3c3be623: openrlhf/models/loss.py,
// openrlhf/models/utils.py and openrlhf/trainer/ray/ppo_actor.py; reinforce_pro
// as of richardodliu/OpenRLHF @01a0f25e. README.md tells what is covered and
// what was decided where the original leaves it open.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_OPENRLHF_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_OPENRLHF_H_

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialects/dialect.h"

namespace counterweight::server {

// See Dialect::translate.
Translation TranslateOpenrlhf(const google::protobuf::Struct& block,
                              bool ignore_unknown_fields,
                              const RequestFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_OPENRLHF_H_
