// Decodes CorrectionConfig.sequence_filter. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_SEQUENCE_FILTER_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_SEQUENCE_FILTER_H_

#include <optional>

#include "counterweight/v1/method.pb.h"
#include "server/engine/row_filter.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// Nothing if the config has none. Field paths begin with
// "method.config.sequence_filter.".
std::optional<RowFilter> ReadSequenceFilter(const v1::CorrectionConfig& config,
                                            Violations* violations);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_SEQUENCE_FILTER_H_
