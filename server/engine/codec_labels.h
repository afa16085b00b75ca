// Checks of the id and the labels that requests share. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_LABELS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_LABELS_H_

#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "server/engine/violation.h"

namespace counterweight::server {

inline constexpr char kLabelPattern[] = "must match [A-Za-z0-9_.-]{1,64}";

// True for a text of that pattern.
bool IsLabel(const std::string& text);

// Adds the violations of the fields request_id, which may be empty, and labels.
void CheckLabels(const std::string& request_id, const v1::Labels& labels,
                 Violations* violations);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_LABELS_H_
