// Conversions of surrogates and their numbers. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_SURROGATES_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_SURROGATES_H_

#include <optional>

#include "counterweight/v1/method.pb.h"
#include "kernels/loss_parameters.h"
#include "kernels/loss_spec.h"
#include "kernels/surrogate_info.h"

namespace counterweight::server {

// The kernels' form of a wire Surrogate.
struct SurrogateRow {
  v1::Surrogate wire;
  kernels::Surrogate surrogate;
  kernels::LossLevel level;
  kernels::SurrogateInfo info;
};

// Returns nothing for an unknown surrogate.
std::optional<SurrogateRow> FindSurrogate(v1::Surrogate wire);

// Returns the wire's surrogate for a kernel surrogate at a level; `sums_rows`
// distinguishes losses that differ only in the reduction of rows.
v1::Surrogate SurrogateOf(kernels::Surrogate surrogate,
                          kernels::LossLevel level, bool sums_rows);

// Returns the number of PolicyLoss with the parameter's name; nothing if it is
// absent.
std::optional<double> NumberOf(const v1::PolicyLoss& loss,
                               kernels::LossParameter parameter);
void SetNumber(kernels::LossParameter parameter, double value,
               v1::PolicyLoss* loss);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_SURROGATES_H_
