// Decodes other systems' blocks. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_DIALECT_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_DIALECT_H_

#include <span>

#include "counterweight/v1/method.pb.h"
#include "server/engine/codec_method.h"
#include "server/engine/dialect.h"
#include "server/engine/result.h"

namespace counterweight::server {

// Translates the block by its dialect.
Result<Method> ReadDialect(const v1::Dialect& block, RequestFacts facts,
                           std::span<const Dialect> dialects);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_DIALECT_H_
