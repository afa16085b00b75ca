// Sequences that count as masked, by their tokens, before anything else.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_ROW_FILTER_H_
#define COUNTERWEIGHT_SERVER_ENGINE_ROW_FILTER_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/batch.h"
#include "kernels/corrector.h"
#include "kernels/spec.h"

namespace counterweight::server {

// The mean of exp(|l|) of each sequence with tokens, in their order.
struct RowErrors {
  std::vector<double> all;
  std::vector<double> kept;
};

struct RowFilter {
  kernels::RatioSource source = kernels::RatioSource::kOldRollout;
  // Sequences with a larger mean of exp(|l|) count as masked, in every count
  // and number of the answer.
  double upper = std::numeric_limits<double>::infinity();
  // Adds metrics.
  std::function<void(const RowErrors& errors,
                     std::map<std::string, double>* metrics)>
      report;
};

// Bits of InputRole: the tensors that it reads.
uint32_t TensorsOf(const RowFilter& filter);

// Writes response_mask to mask, [num_positions], with 0 for the sequences that
// the filter drops. Tokens that are not finite have no part in a mean, and stay
// as they are; with kReject so does their sequence, for the correction to
// refuse. `stop`, which may be empty, is called between sequences; nothing is
// returned if it is true once. REQUIRES: host memory; the source's tensors are
// there.
std::optional<RowErrors> FilterRows(const RowFilter& filter,
                                    const kernels::Batch& batch,
                                    kernels::NonFinitePolicy policy,
                                    const kernels::StopRequest& stop,
                                    uint8_t* mask);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_ROW_FILTER_H_
