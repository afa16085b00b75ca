// Bounds that a request leaves to its run's calm steps. Part of the codec.
//
// A server replaces such a bound by its number before anything else reads the
// method; a reader of a method that still has one
// refuses it.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_CALM_BOUND_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_CALM_BOUND_H_

#include <optional>
#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "server/engine/calm_level.h"
#include "server/engine/result.h"

namespace counterweight::server {

struct CalmBound {
  // The request's.
  std::string field;
  CalmWeights weights;
  // The bound of the steps that make the calm level, as the request has it.
  std::optional<double> until;
};

// The reason with which a method is refused that still has such a bound.
inline constexpr char kNoCalmBoundHere[] =
    "is resolved by a server alone, when it corrects a batch of a run; give a "
    "number here, such as the one that resolved_bounds of an answer has";

bool HasCalmBound(const v1::Method& method);

// Reads the bound of a method, but for the labels.
Result<CalmBound> ReadCalmBound(const v1::Method& method);

// The violations of labels that a bound cannot do without.
Violations CheckCalmLabels(const v1::CorrectRequest& request,
                           const CalmBound& bound);

// Replaces the bound by a number, or by what the steps before have.
void SetBound(double upper, v1::Method* method);

// The method as the steps before have it: with CalmBound::until, or 2.
v1::Method WithoutCalmBound(const v1::Method& method);

// Violation and warnings of a level that is not known yet: the first without
// `until`, the second where the run's steps are too small to make one, the
// third for a batch without metrics, or without memory to count its weights.
Violation NoCalmLevel(const std::string& run, const CalmBound& bound,
                      const CalmLevel& level);
std::string WarnOfFewWeights(const CalmBound& bound, const CalmLevel& level);
std::string WarnOfUncountedBatch(const CalmBound& bound, bool omits_metrics);

// The bound of a step with this level. REQUIRES: is_calm or `until`.
double BoundOf(const CalmBound& bound, const CalmLevel& level);

void EncodeBound(const CalmBound& bound, const CalmLevel& level,
                 v1::CorrectResponse* response);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_CALM_BOUND_H_
