// The surrogates of the wire as rows of one table. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_SURROGATES_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_SURROGATES_H_

#include <span>

#include "counterweight/v1/method.pb.h"
#include "kernels/surrogate_info.h"

namespace counterweight::server {

// What a Surrogate of the wire is in the kernels.
struct SurrogateRow {
  v1::Surrogate wire;
  kernels::Surrogate surrogate;
  kernels::LossLevel level;

  // The surrogate reads these of PolicyLoss's numbers.
  constexpr bool Reads(kernels::SurrogateNumbers group) const {
    return kernels::InfoOf(surrogate).Reads(group);
  }
};

std::span<const SurrogateRow> SurrogateRows();

// Null if there is none.
const SurrogateRow* FindSurrogate(v1::Surrogate wire);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_SURROGATES_H_
