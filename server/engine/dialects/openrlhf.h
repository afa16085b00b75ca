// OpenRLHF's PolicyLoss and KL loss, from OpenRLHF/OpenRLHF @3c3be623:
// openrlhf/models/loss.py, openrlhf/models/utils.py and
// openrlhf/trainer/ray/ppo_actor.py; reinforce_pro from richardodliu/OpenRLHF
// @01a0f25e. README.md lists the coverage and decisions.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_OPENRLHF_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_OPENRLHF_H_

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

// See Dialect::translate.
Translation TranslateOpenrlhf(const google::protobuf::Struct& block,
                              bool ignore_unknown_fields,
                              const RequestFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_OPENRLHF_H_
