// Between proto and kernel types: the only place where both are known.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_H_

#include <cstddef>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "kernels/batch.h"
#include "kernels/corrector.h"
#include "server/engine/codec_layout.h"
#include "server/engine/codec_method.h"
#include "server/engine/codec_outputs.h"
#include "server/engine/codec_tensors.h"
#include "server/engine/result.h"
#include "server/engine/stream_batch.h"

namespace counterweight::server {

// A valid request in kernel types; never changed. Views point into the
// CorrectRequest that it was decoded from, which must outlive it, or into
// regions that it keeps.
struct Decoded {
  Layout layout;
  Tensors tensors;
  Method method;
  Groups groups;
  Outputs outputs;
  std::vector<std::string> warnings;
  // The answer has neither metrics nor rules.
  bool omits_metrics = false;
};

// All violations at once, or none and a request that can be computed once a
// stream's inputs and a shared mask are there. If source.is_wanted says no,
// what is returned means nothing.
Result<Decoded> Decode(const v1::CorrectRequest& request,
                       const RequestLimits& limits,
                       const PayloadSource& source);

// What the kernels read. `decoded` must outlive it, and not be moved.
kernels::Batch BatchOf(const Decoded& decoded);

struct PlacedInputs {
  std::vector<StreamTensor> tensors;
  // BatchOf() of the places.
  kernels::Batch batch;
};

// Gives a stream's inputs their places in `memory`, InputBytes() bytes aligned
// to 64, one behind the other.
PlacedInputs PlaceInputs(std::byte* memory, const Decoded& decoded);

// Writes what is not a tensor. Returns violations that `report` found; the
// response is then not to be sent.
Violations Encode(const Decoded& decoded, const kernels::BatchSums& sums,
                  v1::CorrectResponse* response);

// The methods table as ListMethods answers it.
void EncodeMethods(v1::ListMethodsResponse* response);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_H_
