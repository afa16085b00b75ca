#include "server/engine/dialects/verl_presets.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "server/engine/dialects/python_float.h"
#include "server/engine/dialects/verl_layout.h"

namespace counterweight::server {
namespace {

using google::protobuf::Value;

using Is = PresetIsThreshold;

constexpr std::string_view kGeo = "seq_mean_k1";
constexpr std::string_view kGeoBounds = "0.999_1.001";
constexpr std::string_view kK3 = "seq_mean_k3";
constexpr std::string_view kK3Bound = "0.01";

constexpr VerlPreset kPresets[] = {
    {"decoupled_token_is", "token", Is::kThreshold, "", "", false, "ppo_clip"},
    {"decoupled_seq_is", "sequence", Is::kThreshold, "", "", false, "ppo_clip"},
    {"decoupled_token_icepop", "token", Is::kIcePop, "", "", false, "ppo_clip"},
    {"decoupled_seq_is_rs", "sequence", Is::kIsThreshold, "seq_sum_k1",
     "0.5_2.0", false, "ppo_clip"},
    {"decoupled_geo_rs", "", Is::kDefault, kGeo, kGeoBounds, false, "ppo_clip"},
    {"decoupled_geo_rs_seq_tis", "sequence", Is::kIsThreshold, kGeo, kGeoBounds,
     false, "ppo_clip"},
    {"decoupled_geo_rs_token_tis", "token", Is::kIsThreshold, kGeo, kGeoBounds,
     false, "ppo_clip"},
    {"decoupled_k3_rs", "", Is::kDefault, kK3, kK3Bound, false, "ppo_clip"},
    {"decoupled_k3_rs_seq_tis", "sequence", Is::kIsThreshold, kK3, kK3Bound,
     false, "ppo_clip"},
    {"decoupled_k3_rs_token_tis", "token", Is::kIsThreshold, kK3, kK3Bound,
     false, "ppo_clip"},
    {"bypass_ppo_clip", "", Is::kDefault, "", "", true, "ppo_clip"},
    {"bypass_ppo_clip_geo_rs", "", Is::kDefault, kGeo, kGeoBounds, true,
     "ppo_clip"},
    {"bypass_ppo_clip_k3_rs", "", Is::kDefault, kK3, kK3Bound, true,
     "ppo_clip"},
    {"bypass_pg_is", "sequence", Is::kThreshold, "", "", true, "reinforce"},
    {"bypass_pg_token_icepop", "token", Is::kIcePop, "", "", true, "reinforce"},
    {"bypass_pg_geo_rs", "", Is::kDefault, kGeo, kGeoBounds, true, "reinforce"},
    {"bypass_pg_geo_rs_seq_tis", "sequence", Is::kIsThreshold, kGeo, kGeoBounds,
     true, "reinforce"},
    {"bypass_pg_geo_rs_token_tis", "token", Is::kIsThreshold, kGeo, kGeoBounds,
     true, "reinforce"},
    {"disabled", "", Is::kDefault, "", "", false, "ppo_clip"},
};

Value Number(double number) {
  Value value;
  value.set_number_value(number);
  return value;
}

Value String(std::string_view text) {
  Value value;
  value.set_string_value(std::string(text));
  return value;
}

// Formats an argument like Python's f-string.
std::string PythonText(const Value& value) {
  switch (value.kind_case()) {
    case Value::kNumberValue:
      return FormatNumber(value.number_value());
    case Value::kStringValue:
      return value.string_value();
    case Value::kBoolValue:
      return value.bool_value() ? "True" : "False";
    case Value::kNullValue:
    case Value::KIND_NOT_SET:
      return "None";
    case Value::kStructValue:
    case Value::kListValue:
      return Describe(value);
  }
  return "None";
}

// Returns the argument, or `missing` if it is absent; null is a value.
Value Argument(const BlockReader& reader, std::string_view name,
               const Value& missing) {
  const Value* value = reader.Find(name);
  return value == nullptr ? missing : *value;
}

std::vector<std::string_view> ArgumentNames(const VerlPreset& preset) {
  std::vector<std::string_view> names;
  switch (preset.is_threshold) {
    case Is::kDefault:
      break;
    case Is::kThreshold:
      names = {"threshold"};
      break;
    case Is::kIsThreshold:
      names = {"is_threshold"};
      break;
    case Is::kIcePop:
      names = {"threshold", "threshold_lower"};
      break;
  }
  if (!preset.rs_threshold.empty()) names.push_back("rs_threshold");
  return names;
}

void FillIsThreshold(const VerlPreset& preset, const BlockReader& reader,
                     ExpandedPreset* expanded) {
  Value& field = (*expanded->config.mutable_fields())["rollout_is_threshold"];
  std::string& argument = expanded->argument_of["rollout_is_threshold"];
  switch (preset.is_threshold) {
    case Is::kDefault:
      field = Number(2.0);
      argument = "preset";
      return;
    case Is::kThreshold:
      field = Argument(reader, "threshold", Number(2.0));
      argument = "threshold";
      return;
    case Is::kIsThreshold:
      field = Argument(reader, "is_threshold", Number(2.0));
      argument = "is_threshold";
      return;
    case Is::kIcePop:
      field = String(
          Concat(PythonText(Argument(reader, "threshold_lower", Number(0.5))),
                 "_", PythonText(Argument(reader, "threshold", Number(5.0)))));
      argument = "threshold";
      return;
  }
}

// Parses a YAML scalar: "0.01" is a number, "0.5_2.0" a string.
Value Scalar(std::string_view text) {
  const std::optional<double> number = ParsePythonFloat(text);
  return number ? Number(*number) : String(text);
}

const VerlPreset* FindPreset(const BlockReader& reader) {
  const Value& value = *reader.Find(kVerlPreset);
  std::vector<std::string_view> names;
  for (const VerlPreset& preset : kPresets) names.push_back(preset.name);
  if (value.kind_case() != Value::kStringValue) {
    reader.Violate(
        kVerlPreset,
        Concat("preset must be the name of a preset, got ", Describe(value),
               ". Presets are ", JoinNames(names), "."));
    return nullptr;
  }
  const std::string& name = value.string_value();
  const auto* preset =
      std::find_if(std::begin(kPresets), std::end(kPresets),
                   [&](const VerlPreset& row) { return row.name == name; });
  if (preset != std::end(kPresets)) return preset;
  reader.Violate(kVerlPreset, Concat("Unknown preset ", Quote(name), ". ",
                                     DidYouMean(name, names), "Presets are ",
                                     JoinNames(names), "."));
  return nullptr;
}

}  // namespace

std::span<const VerlPreset> VerlPresets() { return kPresets; }

std::optional<ExpandedPreset> ExpandVerlPreset(
    const BlockReader& reader, bool ignore,
    std::vector<std::string>* warnings) {
  const VerlPreset* preset = FindPreset(reader);
  if (preset == nullptr) return std::nullopt;
  ExpandedPreset expanded;

  const std::vector<std::string_view> arguments = ArgumentNames(*preset);
  std::vector<std::string_view> known = arguments;
  known.push_back(kVerlPreset);
  // The caller refuses it by its own name.
  known.push_back(kVerlPolicyLoss);
  reader.CheckKeys(
      known, ignore,
      [&](std::string_view) {
        return Concat(
            "a preset stands for the whole block; ", preset->name,
            arguments.empty() ? " takes no arguments" : " takes the arguments ",
            JoinNames(arguments));
      },
      warnings);

  auto& config = *expanded.config.mutable_fields();
  if (!preset->rollout_is.empty()) {
    config["rollout_is"] = String(preset->rollout_is);
  }
  FillIsThreshold(*preset, reader, &expanded);
  if (!preset->rollout_rs.empty()) {
    config["rollout_rs"] = String(preset->rollout_rs);
    config["rollout_rs_threshold"] =
        Argument(reader, "rs_threshold", Scalar(preset->rs_threshold));
    expanded.argument_of["rollout_rs_threshold"] = "rs_threshold";
  }
  config["bypass_mode"].set_bool_value(preset->bypass_mode);
  config["loss_type"] = String(preset->loss_type);
  return expanded;
}

}  // namespace counterweight::server
