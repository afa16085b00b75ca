// Sentences of CorrectResponse.warnings about a batch's numbers. Part of the
// codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_WARNINGS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_WARNINGS_H_

#include <string>
#include <vector>

#include "server/engine/codec.h"

namespace counterweight::server {

// One sentence for log-probs above 0, and one for each rule that drops more
// than half of the tokens that it covers; an answer without metrics counts no
// tokens of rules. Shares are in whole percent, so that the batches of a run
// mostly have the same text, which readers of logs show once.
std::vector<std::string> WarnOfNumbers(const Decoded& decoded,
                                       const AnswerNumbers& numbers);

// One sentence if the answer's metrics lack those of Method::token_metrics:
// sums of parts do not have them, nor are tensors on a device passed over.
std::vector<std::string> WarnOfTokenMetrics(const Method& method, bool is_part,
                                            bool is_on_device);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_WARNINGS_H_
