// verl's nineteen presets: RolloutCorrectionConfig's factory methods of
// verl-project/verl @1dda039b, verl/trainer/config/algorithm.py.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_PRESETS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_PRESETS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialects/block_reader.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// The source of a preset's rollout_is_threshold.
enum class PresetIsThreshold : uint8_t {
  kDefault,      // 2.0, no argument
  kThreshold,    // argument `threshold`, default 2.0
  kIsThreshold,  // argument `is_threshold`, default 2.0
  kIcePop,       // arguments `threshold` 5.0 and `threshold_lower` 0.5
};

// One factory method. Empty strings mean Python's None.
struct VerlPreset {
  std::string_view name;  // "decoupled_geo_rs_token_tis"
  std::string_view rollout_is;
  PresetIsThreshold is_threshold;
  std::string_view rollout_rs;
  // Default of the argument `rs_threshold`, as YAML; empty: no such argument.
  std::string_view rs_threshold;
  bool bypass_mode;
  std::string_view loss_type;
};

// In the order of the original.
std::span<const VerlPreset> VerlPresets();

// A preset with its arguments as a RolloutCorrectionConfig.
struct ExpandedPreset {
  google::protobuf::Struct config;
  // The argument behind a field of `config`: rollout_is_threshold -> threshold.
  std::map<std::string, std::string, std::less<>> argument_of;
};

// `reader` reads a block with the key `preset` and that preset's arguments. An
// unknown preset is a violation without a config; unknown arguments are handled
// by BlockReader::CheckKeys; values of arguments are checked like the fields
// that they become.
std::optional<ExpandedPreset> ExpandVerlPreset(
    const BlockReader& reader, bool ignore, std::vector<std::string>* warnings);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_PRESETS_H_
