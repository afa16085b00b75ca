// The part of a corrected batch that the drift metrics are made of.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_PUBLICATION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_PUBLICATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/engine/published_sums.h"

namespace counterweight::server {

// Made by Published() or read from a PublishRequest: the metrics are the same
// for a batch that the server corrected and for one that a client did.
struct PublishedBatch {
  bool has_weight = false;
  bool has_loss = false;
  bool has_kl_penalty = false;
  // Parallel to sums.rules; as many as the method has rules.
  std::vector<std::string> rule_names;
  PublishedSums sums{};
};

// A batch with its origin.
struct Publication {
  std::string request_id;
  // Labels; empty: unlabelled.
  std::string run;
  std::string replica;
  std::optional<int64_t> policy_version;
  PublishedBatch batch;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_PUBLICATION_H_
