#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/embedded/answer.h"
#include "server/embedded/cancellation.h"
#include "server/embedded/compute.h"
#include "server/embedded/prepared_call.h"
#include "server/engine/codec_partial.h"
#include "server/engine/names.h"

namespace counterweight::embedded {
namespace {

using server::Concat;

constexpr size_t kMostParts = size_t{1} << 20;

// Memory of the answer for a matrix with a row of `width` numbers per part.
double* AddMatrix(size_t num_parts, size_t width, Answer* answer) {
  const size_t size = num_parts * width * sizeof(double);
  void* const data = answer->Allocate(size);
  answer->places.push_back({data, size});
  return static_cast<double*>(data);
}

void Store(const std::vector<kernels::PartialSums>& sums, Answer* answer) {
  if (sums.empty()) {
    answer->places.assign(2, {nullptr, 0});
    return;
  }
  const kernels::PartialSums& first = sums.front();
  double* at = AddMatrix(
      sums.size(), first.whole.size() + first.narrow.size() + first.wide.size(),
      answer);
  double* maxima = AddMatrix(sums.size(), first.maxima.size(), answer);
  for (const kernels::PartialSums& part : sums) {
    at = std::copy(part.whole.begin(), part.whole.end(), at);
    at = std::copy(part.narrow.begin(), part.narrow.end(), at);
    at = std::copy(part.wide.begin(), part.wide.end(), at);
    maxima = std::copy(part.maxima.begin(), part.maxima.end(), maxima);
  }
}

Failure Wrong(std::string what) {
  return {CW_INVALID_ARGUMENT, std::move(what), {}};
}

Failure CheckParts(const cw_parts& parts, int64_t num_sequences) {
  if (parts.num_parts > kMostParts) {
    return Wrong(Concat("parts.num_parts is ", parts.num_parts, "; at most ",
                        kMostParts, " are summed"));
  }
  if (num_sequences > 0 && parts.part_of_row == nullptr) {
    return Misuse("parts.part_of_row must not be NULL");
  }
  for (int64_t i = 0; i < num_sequences; ++i) {
    const int32_t part = parts.part_of_row[i];
    if (part < -1 || part >= static_cast<int64_t>(parts.num_parts)) {
      return Wrong(Concat("parts.part_of_row[", i, "] is ", part,
                          ", which is not in [-1, ", parts.num_parts, ")"));
    }
  }
  return {};
}

}  // namespace

Failure PreparedCall::SumParts(const cw_batch& batch, const cw_parts& parts,
                               Answer* answer) const {
  Failure apart = {
      CW_FAILED_PRECONDITION,
      "the sums of these parts need a cw_run for each: the backend is not "
      "\"cpu\", the method drops sequences or makes tensors before anything "
      "else, or tokens are not finite and have versions",
      {}};
  if (engine_->computes_on_device() || decoded_.HasFirstPass()) return apart;
  if (!decoded_.returns_sums ||
      decoded_.method.spec.loss.surrogate != kernels::Surrogate::kNone) {
    return Misuse(
        "a plan whose parts are summed must have partial_sums, and no loss or "
        "omit_loss");
  }
  const Cancellation cancellation(batch.stop, batch.timeout_seconds);
  std::unique_ptr<Reading> reading = TakeReading();
  Failure failure = ReadBatch(batch, reading.get());
  if (!failure.ok()) return failure;
  const server::Decoded& decoded = *reading->decoded;
  kernels::Batch view = reading->batch;
  failure = CheckParts(parts, view.num_sequences);
  if (!failure.ok()) return failure;
  if (reading->versions.came) view.versions = &reading->versions;
  kernels::Corrector* corrector = nullptr;
  failure = engine_->Use(&corrector);
  if (!failure.ok()) return failure;
  std::vector<kernels::PartialSums> sums;
  const std::optional<kernels::CorrectResult> result = corrector->SumParts(
      decoded.method.spec, view,
      {parts.part_of_row, static_cast<int64_t>(parts.num_parts)},
      [&cancellation] { return cancellation.Code() != CW_OK; }, &sums);
  if (!result) return apart;
  failure = ToFailure(*result, decoded, cancellation);
  if (!failure.ok()) return failure;
  for (kernels::PartialSums& part : sums) {
    server::Identify(decoded.partial, &part);
  }
  Store(sums, answer);
  Keep(std::move(reading));
  return {};
}

}  // namespace counterweight::embedded
