// The part of a corrected batch that the drift metrics are made of.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_PUBLICATION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_PUBLICATION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/partial_sums.h"
#include "server/engine/published_sums.h"

namespace counterweight::server {

// Made by Published() or read from a PublishRequest: the metrics are the same
// for a batch that the server corrected and for one that a client did.
struct PublishedBatch {
  bool has_weight = false;
  bool has_kept_weight = false;
  bool has_loss = false;
  bool has_kl_penalty = false;
  // Parallel to sums.rules; as many as the method has rules.
  std::vector<std::string> rule_names;
  PublishedSums sums{};
};

// A batch as a part of an optimizer step.
struct StepPart {
  int64_t step = 0;
  // The batch's, with the identity of its method.
  kernels::PartialSums sums;
  // Makes the published sums of a step of these sums of its parts.
  std::function<PublishedBatch(const kernels::PartialSums&)> publish;
};

// A batch with its origin.
struct Publication {
  std::string request_id;
  // Labels; empty: unlabelled.
  std::string run;
  std::string replica;
  std::optional<int64_t> policy_version;
  PublishedBatch batch;
  std::optional<StepPart> part;
  // FactBitsOf the batch's request; absent if its method is not known.
  std::optional<uint64_t> facts;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_PUBLICATION_H_
