// TRL's GRPOConfig and its trainer, from huggingface/trl @f2cd5771:
// trl/trainer/grpo_config.py and trl/trainer/grpo_trainer.py.
// server/engine/dialects/README.md lists the coverage and decisions.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_H_

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

// See Dialect::translate.
Translation TranslateTrl(const google::protobuf::Struct& block,
                         bool ignore_unknown_fields, const RequestFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_H_
