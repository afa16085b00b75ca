// Group baselines of other systems, by name. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_GROUP_SYSTEMS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_GROUP_SYSTEMS_H_

#include <span>
#include <string_view>

#include "kernels/group_baseline.h"

namespace counterweight::server {

struct GroupSystem {
  // The system, and its function or the value of its option.
  std::string_view name;
  kernels::GroupBaseline baseline;
  // Groups are slices of one size: where the step's have several, the system
  // takes all rows for one group.
  bool merges_ragged = false;
};

std::span<const GroupSystem> GroupSystems();

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_GROUP_SYSTEMS_H_
