// One block of each dialect for its users: what SYSTEMS.md has of it.
#ifndef COUNTERWEIGHT_TESTS_SERVER_DIALECTS_SYSTEM_BLOCKS_H_
#define COUNTERWEIGHT_TESTS_SERVER_DIALECTS_SYSTEM_BLOCKS_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"

namespace counterweight::server {

// A system's correction with the system's own field names.
struct SystemBlock {
  std::string_view system;
  std::string_view json;
  // The system's function, and ours in its place, a module's name first.
  std::string_view replaced;
  std::string_view function;
  // A clause on how that is configured, and a clause on how often it calls.
  std::string_view how;
  std::string_view calls;
  // True if the function computes the loss and its gradient.
  bool has_loss;
  // Metrics of the answer.
  std::vector<std::string_view> watched;
};

// In the order of Dialects().
std::span<const SystemBlock> SystemBlocks();

// Returns a request of two sequences with the block, for weights and the keep
// mask, and with has_loss for the gradient. It has the tensors that the method
// reads, and no other.
v1::CorrectRequest RequestOf(const SystemBlock& block);

// Returns a sentence on what such a request moves and computes, from its
// translation, in Markdown. Log-probs and advantages are float32.
std::string CostOf(const SystemBlock& block);

// The section of SYSTEMS.md of these blocks, in Markdown.
std::string SystemSections();

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_DIALECTS_SYSTEM_BLOCKS_H_
