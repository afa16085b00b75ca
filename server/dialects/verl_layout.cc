#include "server/dialects/verl_layout.h"

#include <algorithm>
#include <iterator>

namespace counterweight::server {
namespace {

using google::protobuf::Struct;

constexpr std::string_view kRoot = "method.dialect.block";

// RolloutCorrectionConfig, and what may stand beside it.
constexpr std::string_view kFields[] = {"rollout_is",
                                        "rollout_is_threshold",
                                        "rollout_is_batch_normalize",
                                        "rollout_rs",
                                        "rollout_rs_threshold",
                                        "bypass_mode",
                                        "loss_type",
                                        kVerlPreset,
                                        kVerlPolicyLoss};

// What became of a field that older configurations still have.
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

VerlLayout LocateInTree(const BlockReader& root, bool wants_gradient,
                        Violations* violations) {
  for (const std::string_view field : kFields) {
    if (root.Find(field) == nullptr) continue;
    root.Violate(
        field, Concat(field, " belongs into ",
                      field == kVerlPolicyLoss ? "actor_rollout_ref.actor"
                                               : "algorithm.rollout_correction",
                      " where the block is verl's own tree."));
  }
  VerlLayout layout{&Struct::default_instance(),
                    Concat(kRoot, ".algorithm.rollout_correction")};
  if (const Struct* algorithm = root.ReadStruct("algorithm")) {
    const BlockReader reader(*algorithm, root.Path("algorithm"), violations);
    if (const Struct* config = reader.ReadStruct("rollout_correction")) {
      layout.config = config;
    }
  }
  if (const Struct* worker = root.ReadStruct("actor_rollout_ref")) {
    const BlockReader reader(*worker, root.Path("actor_rollout_ref"),
                             violations);
    // Every full configuration has an actor, so its presence asks for nothing.
    if (reader.ReadStruct("actor") != nullptr && wants_gradient) {
      reader.Violate("actor",
                     "This server computes no policy losses yet; leave "
                     "GRADIENT out of the outputs to get weights, keep mask "
                     "and metrics.");
    }
  }
  return layout;
}

}  // namespace

VerlLayout LocateVerlConfig(const Struct& block, bool wants_gradient,
                            Violations* violations) {
  const BlockReader root(block, std::string(kRoot), violations);
  if (root.Find("algorithm") != nullptr ||
      root.Find("actor_rollout_ref") != nullptr) {
    return LocateInTree(root, wants_gradient, violations);
  }
  return {&block, std::string(kRoot)};
}

void CheckVerlFields(const BlockReader& reader, bool ignore,
                     std::vector<std::string>* warnings) {
  reader.CheckKeys(kFields, ignore, Advice, warnings);
}

}  // namespace counterweight::server
