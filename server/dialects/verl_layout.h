// Where a verl block keeps the fields of RolloutCorrectionConfig, and which
// fields those are.
#ifndef COUNTERWEIGHT_SERVER_DIALECTS_VERL_LAYOUT_H_
#define COUNTERWEIGHT_SERVER_DIALECTS_VERL_LAYOUT_H_

#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/struct.pb.h"
#include "server/dialects/block_reader.h"
#include "server/violation.h"

namespace counterweight::server {

// Keys that may stand beside the fields, see README.md.
inline constexpr std::string_view kVerlPreset = "preset";
inline constexpr std::string_view kVerlPolicyLoss = "policy_loss";

struct VerlLayout {
  // In the block, or empty where verl's tree has no such node.
  const google::protobuf::Struct* config;
  // "method.dialect.block" or a node below it.
  std::string path;
};

// Fields at the top of `block`, or, where one of verl's own top-level nodes is
// there, its tree: algorithm.rollout_correction, all other keys left alone. A
// tree's actor is a loss asked for where `wants_gradient`, and refused then.
VerlLayout LocateVerlConfig(const google::protobuf::Struct& block,
                            bool wants_gradient, Violations* violations);

// Refuses or, if `ignore`, warns of keys that are neither a field nor one of
// those above.
void CheckVerlFields(const BlockReader& reader, bool ignore,
                     std::vector<std::string>* warnings);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_DIALECTS_VERL_LAYOUT_H_
