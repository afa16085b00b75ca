// Facts about the request that a method can use. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_FACTS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_FACTS_H_

#include "counterweight/v1/correction_service.pb.h"
#include "server/engine/dialects/dialect.h"

namespace counterweight::server {

struct MethodFacts {
  // The present log-probs determine UNSPECIFIED sources.
  RequestFacts request;
  // Null: not sent.
  const v1::GlobalCounts* global_counts = nullptr;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_FACTS_H_
