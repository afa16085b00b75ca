#include "server/engine/dialects/verl_layout.h"

#include <algorithm>
#include <iterator>

#include "server/engine/dialects/fields.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;

constexpr std::string_view kRoot = "method.dialect.block";

// Fate of a field of older configurations.
struct FormerField {
  std::string_view name;
  std::string_view advice;
};

constexpr FormerField kFormerFields[] = {
    {"rollout_is_level", "it is 'rollout_is' now"},
    {"rollout_is_threshold_lower",
     "write both bounds into rollout_is_threshold, as in '0.5_5.0'"},
    {"rollout_rs_threshold_lower",
     "write both bounds into rollout_rs_threshold, as in '0.5_2.0'"},
    {"rollout_token_veto_threshold",
     "verl removed the veto; rollout_rs 'token_k1' drops single outliers"},
    {"bypass_old_logprob_for_rollout", "it is 'bypass_mode' now"},
    {"use_pure_rollout_correction", "it is loss_type 'reinforce' now"},
};

std::string Advice(std::string_view name) {
  const auto* row = std::find_if(
      std::begin(kFormerFields), std::end(kFormerFields),
      [&](const FormerField& former) { return former.name == name; });
  return std::string(row == std::end(kFormerFields) ? "" : row->advice);
}

// Returns the struct at `key` of `parent`.
VerlNode Descend(const VerlNode& parent, std::string_view key,
                 Violations* violations) {
  const BlockReader reader(*parent.fields, parent.path, violations);
  VerlNode node;
  node.path = reader.Path(key);
  if (const Struct* fields = reader.ReadStruct(key)) node.fields = fields;
  return node;
}

VerlLayout LocateInTree(const VerlNode& root, Violations* violations) {
  const BlockReader reader(*root.fields, root.path, violations);
  for (const std::string_view field : kVerlLayoutFields) {
    if (reader.Find(field) == nullptr) continue;
    reader.Violate(
        field, Concat(field, " belongs into ",
                      field == kVerlPolicyLoss ? "actor_rollout_ref.actor"
                                               : "algorithm.rollout_correction",
                      " where the block is verl's own tree."));
  }
  VerlLayout layout;
  layout.is_tree = true;
  layout.correction = Descend(Descend(root, "algorithm", violations),
                              "rollout_correction", violations);
  layout.actor = Descend(Descend(root, "actor_rollout_ref", violations),
                         "actor", violations);
  layout.policy_loss = Descend(layout.actor, kVerlPolicyLoss, violations);
  return layout;
}

}  // namespace

VerlLayout LocateVerlConfig(const Struct& block, Violations* violations) {
  const VerlNode root{&block, std::string(kRoot)};
  const BlockReader reader(block, root.path, violations);
  if (reader.Find("algorithm") != nullptr ||
      reader.Find("actor_rollout_ref") != nullptr) {
    return LocateInTree(root, violations);
  }
  VerlLayout layout;
  layout.correction = root;
  layout.actor = Descend(root, kVerlPolicyLoss, violations);
  layout.policy_loss = layout.actor;
  layout.has_loss = !reader.IsNull(kVerlPolicyLoss);
  return layout;
}

void CheckVerlFields(const BlockReader& reader, bool ignore,
                     std::vector<std::string>* warnings) {
  reader.CheckKeys(kVerlLayoutFields, ignore, Advice, warnings);
}

void CheckVerlLossFields(const BlockReader& reader, bool ignore,
                         std::vector<std::string>* warnings) {
  reader.CheckKeys(
      kVerlLossFields, ignore,
      [](std::string_view name) {
        const bool belongs_above =
            std::find(std::begin(kVerlLayoutFields),
                      std::end(kVerlLayoutFields),
                      name) != std::end(kVerlLayoutFields) ||
            name == "rollout_correction";
        return std::string(belongs_above
                               ? "rollout correction stands at the "
                                 "top of the block, beside policy_loss"
                               : "");
      },
      warnings);
}

void CheckVerlCountFields(const BlockReader& reader, bool ignore,
                          std::vector<std::string>* warnings) {
  reader.CheckKeys(
      kVerlCountFields, ignore,
      [](std::string_view name) {
        return std::string(name == "loss_scale_factor"
                               ? "it belongs beside global_batch_info"
                               : "");
      },
      warnings);
}

}  // namespace counterweight::server
