// The location of the fields of RolloutCorrectionConfig and of the policy loss
// in a verl block, and the fields' names.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_LAYOUT_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_LAYOUT_H_

#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialects/block_reader.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// Keys beside the fields, see README.md.
inline constexpr std::string_view kVerlPreset = "preset";
inline constexpr std::string_view kVerlPolicyLoss = "policy_loss";

// A struct of the block, empty where the block has none, and its path.
struct VerlNode {
  const google::protobuf::Struct* fields =
      &google::protobuf::Struct::default_instance();
  std::string path;
};

// The three may be one struct; `policy_loss` is then `actor`.
struct VerlLayout {
  VerlNode correction;   // RolloutCorrectionConfig
  VerlNode actor;        // ActorConfig, as far as losses read it
  VerlNode policy_loss;  // PolicyLossConfig
  // True if the block configures a loss, requested or not.
  bool has_loss = false;
  // True for verl's own tree; its other keys are ignored. Every full
  // configuration has an actor, which therefore does not indicate a loss.
  bool is_tree = false;
};

// Finds fields at the top of `block` and in its policy_loss, or, if one of
// verl's top-level nodes is there, in its tree: algorithm.rollout_correction,
// actor_rollout_ref.actor and the policy_loss in it.
VerlLayout LocateVerlConfig(const google::protobuf::Struct& block,
                            Violations* violations);

// Refuses or, if `ignore`, warns of keys other than the fields and keys above.
void CheckVerlFields(const BlockReader& reader, bool ignore,
                     std::vector<std::string>* warnings);

// The same of a policy_loss outside verl's tree, where it holds the fields of
// ActorConfig as well.
void CheckVerlLossFields(const BlockReader& reader, bool ignore,
                         std::vector<std::string>* warnings);

// The same of ActorConfig's global_batch_info.
void CheckVerlCountFields(const BlockReader& reader, bool ignore,
                          std::vector<std::string>* warnings);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_LAYOUT_H_
