#include "server/engine/codec_surrogates.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <string>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "kernels/surrogates/list.h"

namespace counterweight::server {
namespace {

using kernels::LossLevel;
using kernels::Surrogate;

// Further names for a surrogate of the kernels.
struct Alias {
  v1::Surrogate wire;
  Surrogate surrogate;
  LossLevel level = LossLevel::kToken;
  // True if the name is that of a reduction of rows, not of another surrogate
  // and level.
  bool is_aggregation = false;
};

constexpr Alias kAliases[] = {
    {v1::SURROGATE_GSPO, Surrogate::kPpoClip, LossLevel::kSequence},
    {v1::SURROGATE_GSPO_TOKEN, Surrogate::kPpoClip, LossLevel::kSequenceToken},
    {v1::SURROGATE_LUSPO, Surrogate::kPpoClip, LossLevel::kSequence,
     /*is_aggregation=*/true},
    {v1::SURROGATE_GPG, Surrogate::kReinforce},
};

using WireSurrogates = std::array<v1::Surrogate, kernels::kNumSurrogates>;

// Maps each surrogate to SURROGATE_<NAME>, the kernels' name in capitals.
// tests/server/codec_surrogates_test.cc checks that each has one.
WireSurrogates MakeWireSurrogates() {
  WireSurrogates wires{};
  for (int s = 1; s < kernels::kNumSurrogates; ++s) {
    std::string name = kernels::Name(static_cast<Surrogate>(s));
    std::transform(name.begin(), name.end(), name.begin(), [](char c) {
      return static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    });
    // Recent protobuf warns where the result is not read.
    [[maybe_unused]] const bool has_one = v1::Surrogate_Parse(
        "SURROGATE_" + name, &wires[static_cast<size_t>(s)]);
  }
  return wires;
}

v1::Surrogate WireOf(Surrogate surrogate) {
  static const WireSurrogates wires = MakeWireSurrogates();
  return wires[static_cast<size_t>(surrogate)];
}

using Fields = std::array<const google::protobuf::FieldDescriptor*,
                          kernels::kNumLossParameters>;

const google::protobuf::FieldDescriptor* DescriptorOf(
    kernels::LossParameter parameter) {
  static const Fields fields = [] {
    Fields found{};
    for (size_t i = 0; i < found.size(); ++i) {
      found[i] = v1::PolicyLoss::descriptor()->FindFieldByName(
          kernels::kLossParameters[i].name);
    }
    return found;
  }();
  return fields[static_cast<size_t>(parameter)];
}

}  // namespace

std::optional<SurrogateRow> FindSurrogate(v1::Surrogate wire) {
  if (wire == v1::SURROGATE_UNSPECIFIED) return std::nullopt;
  for (const Alias& alias : kAliases) {
    if (alias.wire != wire) continue;
    return SurrogateRow{wire, alias.surrogate, alias.level,
                        kernels::InfoOf(alias.surrogate)};
  }
  for (int s = 1; s < kernels::kNumSurrogates; ++s) {
    const auto surrogate = static_cast<Surrogate>(s);
    if (WireOf(surrogate) != wire) continue;
    return SurrogateRow{wire, surrogate, LossLevel::kToken,
                        kernels::InfoOf(surrogate)};
  }
  return std::nullopt;
}

v1::Surrogate SurrogateOf(Surrogate surrogate, LossLevel level,
                          bool sums_rows) {
  v1::Surrogate wire = WireOf(surrogate);
  for (const Alias& alias : kAliases) {
    if (level == LossLevel::kToken || alias.surrogate != surrogate) continue;
    if (alias.level != level) continue;
    if (!alias.is_aggregation || sums_rows) wire = alias.wire;
  }
  return wire;
}

std::optional<double> NumberOf(const v1::PolicyLoss& loss,
                               kernels::LossParameter parameter) {
  const auto* const field = DescriptorOf(parameter);
  const google::protobuf::Reflection& reflection = *loss.GetReflection();
  if (!reflection.HasField(loss, field)) return std::nullopt;
  return reflection.GetDouble(loss, field);
}

void SetNumber(kernels::LossParameter parameter, double value,
               v1::PolicyLoss* loss) {
  loss->GetReflection()->SetDouble(loss, DescriptorOf(parameter), value);
}

}  // namespace counterweight::server
