// The surrogates of the wire, and the numbers that go with them. Part of the
// codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_SURROGATES_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_SURROGATES_H_

#include <optional>

#include "counterweight/v1/method.pb.h"
#include "kernels/loss_parameters.h"
#include "kernels/loss_spec.h"
#include "kernels/surrogate_info.h"

namespace counterweight::server {

// What a Surrogate of the wire is in the kernels.
struct SurrogateRow {
  v1::Surrogate wire;
  kernels::Surrogate surrogate;
  kernels::LossLevel level;
  kernels::SurrogateInfo info;
};

// None if there is no such surrogate.
std::optional<SurrogateRow> FindSurrogate(v1::Surrogate wire);

// The wire's surrogate for one of the kernels at a level; where losses differ
// in nothing but how rows are added up, `sums_rows` tells them apart.
v1::Surrogate SurrogateOf(kernels::Surrogate surrogate,
                          kernels::LossLevel level, bool sums_rows);

// The number of PolicyLoss that has the parameter's name; none if it is absent.
std::optional<double> NumberOf(const v1::PolicyLoss& loss,
                               kernels::LossParameter parameter);
void SetNumber(kernels::LossParameter parameter, double value,
               v1::PolicyLoss* loss);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_SURROGATES_H_
