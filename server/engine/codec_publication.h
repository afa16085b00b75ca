// Sums of a batch: chosen, written and read. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_PUBLICATION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_PUBLICATION_H_

#include <optional>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "kernels/spec.h"
#include "kernels/sums.h"
#include "server/engine/codec.h"
#include "server/engine/codec_layout.h"
#include "server/engine/publication.h"
#include "server/engine/result.h"

namespace counterweight::server {

// The batch as a PublishRequest would carry it. `rule_names` is parallel to the
// spec's rules.
PublishedBatch Published(const kernels::CorrectionSpec& spec,
                         const std::vector<std::string>& rule_names,
                         const kernels::BatchSums& sums);

// The batch as a part of the step that its request names; none if it does not.
// partial: CorrectResult's.
std::optional<StepPart> PartOf(const v1::CorrectRequest& request,
                               const Decoded& decoded,
                               const kernels::PartialSums& partial);

// The publication of cw_sums for a step: the request's labels, and sums that
// are settled. Violations name what it lacks.
Result<Publication> PublicationOf(const v1::MergeSumsRequest& request,
                                  const v1::PartialSums& sums);

// ReadPublication makes the same publication of it again if the numbers are
// valid.
// method: of the batch, written if publication.facts are there. One with a
// block that is too long is left out, and is not compared with a declared
// method.
v1::PublishRequest WritePublication(const Publication& publication,
                                    const v1::Method& method = v1::Method());

// Returns all violations, or a publication with numbers that a batch within the
// limits may have.
Result<Publication> ReadPublication(const v1::PublishRequest& request,
                                    const RequestLimits& limits);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_PUBLICATION_H_
