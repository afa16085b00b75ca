// Decodes the versions of sampled tokens. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_VERSIONS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_VERSIONS_H_

#include <cstdint>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "kernels/corrector.h"
#include "kernels/staleness.h"
#include "server/engine/codec_layout.h"
#include "server/engine/codec_tensors.h"
#include "server/engine/result.h"

namespace counterweight::server {

struct Versions {
  // The request has a tensor or spans.
  bool came = false;
  int64_t trained = 0;
  std::vector<kernels::VersionSpan> spans;
};

// Checks spans if the layout is valid; the kernels compare versions when the
// mask is there.
Result<Versions> ReadVersions(const v1::CorrectRequest& request,
                              const Result<Layout>& layout,
                              const Tensors& tensors);

// Converts a refused version to a violation.
Violation ToViolation(const kernels::BadVersion& bad);

// Writes the summary; leaves it absent without versions.
void EncodeStaleness(const kernels::StalenessSums& sums,
                     v1::CorrectResponse* response);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_VERSIONS_H_
