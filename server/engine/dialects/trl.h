// TRL's GRPOConfig and the trainer behind it, as of huggingface/trl @f2cd5771:
// trl/trainer/grpo_config.py and trl/trainer/grpo_trainer.py.
// server/engine/dialects/README.md tells what is covered and what was decided
// where the original leaves it open.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_H_

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialects/dialect.h"

namespace counterweight::server {

// See Dialect::translate.
Translation TranslateTrl(const google::protobuf::Struct& block,
                         bool ignore_unknown_fields, const RequestFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_H_
