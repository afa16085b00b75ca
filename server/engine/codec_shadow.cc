#include "server/engine/codec_shadow.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/doctor/shadow.h"
#include "kernels/metrics.h"
#include "kernels/turn_means.h"
#include "server/engine/codec_enums.h"
#include "server/engine/names.h"

namespace counterweight::server {
namespace {

using kernels::Batch;
using kernels::CorrectionSpec;
using kernels::RatioSource;

const void* DataOf(v1::TensorRole role, const Tensors& tensors) {
  if (role == v1::TENSOR_ROLE_RESPONSE_MASK) return tensors.response_mask;
  const auto slot = FromWire(kInputRoles, role);
  return slot ? tensors.views[static_cast<size_t>(*slot)].data : nullptr;
}

// "method.preset.name" is "shadows[0].preset.name" here; what else is wrong is
// wrong beside the shadow.
Violation ByShadow(int index, const Violation& violation) {
  constexpr std::string_view kMethod = "method";
  const std::string shadow = Concat("shadows[", index, "]");
  if (std::string_view(violation.field).starts_with(kMethod)) {
    return {shadow + violation.field.substr(kMethod.size()),
            violation.description};
  }
  return {shadow, Concat(violation.field, ": ", violation.description)};
}

// Weights exp(l) of all tokens with finite numbers, and which tokens these are.
CorrectionSpec RatiosOf(RatioSource source) {
  CorrectionSpec spec;
  // As METHODS.md clamps log ratios.
  constexpr double kMostNats = 20.0;
  spec.weight.level = kernels::Level::kToken;
  spec.weight.source = spec.drift_source = source;
  spec.weight.token_clamp = kMostNats;
  spec.non_finite = kernels::NonFinitePolicy::kDrop;
  spec.metrics = false;
  return spec;
}

// The weights and the mask of a batch.
struct Weighed {
  explicit Weighed(size_t positions) : weights(positions), kept(positions) {}

  std::vector<float> weights;
  std::vector<uint8_t> kept;
};

// Null if it was stopped.
std::optional<kernels::BatchSums> Weigh(kernels::Corrector* corrector,
                                        const CorrectionSpec& spec,
                                        const Batch& batch,
                                        const kernels::StopRequest& stop,
                                        Weighed* weighed) {
  kernels::Outputs outputs;
  if (spec.weight.level != kernels::Level::kNone) {
    outputs.weights = weighed->weights.data();
  }
  outputs.keep_mask = weighed->kept.data();
  kernels::TurnMeans means;
  if (!means.Make(spec, batch, stop)) return std::nullopt;
  Batch with_means = batch;
  means.AddTo(&with_means);
  const kernels::CorrectResult result =
      corrector->CorrectUnlessStopped(spec, with_means, outputs, stop);
  if (result.status != kernels::CorrectStatus::kOk) return std::nullopt;
  return result.sums;
}

void EncodeShadow(const Method& method, const kernels::BatchSums& sums,
                  const kernels::doctor::ShadowEffect& effect,
                  v1::Shadow* shadow) {
  const std::map<std::string, double> metrics =
      kernels::Metrics(method.spec, method.rule_names, sums);
  shadow->set_method(method.name);
  shadow->set_tokens(sums.tokens);
  shadow->set_kept_token_fraction(metrics.at("kept_token_fraction"));
  if (method.spec.weight.level != kernels::Level::kNone) {
    shadow->set_effective_sample_size(metrics.at("effective_sample_size"));
    shadow->set_kept_effective_sample_size(
        metrics.at("kept_effective_sample_size"));
  }
  shadow->set_bias(effect.bias);
  shadow->set_norm_ratio(effect.norm_ratio);
  shadow->set_cosine(effect.cosine);
}

}  // namespace

Result<ShadowedMethods> ReadShadows(const v1::CorrectRequest& request,
                                    const RequestLimits& limits,
                                    const Tensors& tensors) {
  Result<ShadowedMethods> result;
  if (request.shadows_size() == 0) return result;
  if (request.shadows_size() > kMaxShadows) {
    return {{},
            {{"shadows", Concat("has ", request.shadows_size(),
                                " methods; at most ", kMaxShadows)}}};
  }
  if (request.audit().rows_size() > 0) {
    return {{},
            {{"shadows",
              "need old_log_probs of all rows, but audit.rows has some alone; "
              "send one of them"}}};
  }
  v1::CorrectRequest shape;
  *shape.mutable_layout() = request.layout();
  shape.set_non_finite_policy(v1::NON_FINITE_POLICY_DROP);
  shape.set_omit_loss(true);
  std::vector<std::span<const std::byte>> inputs;
  for (size_t i = 0; i < tensors.inputs.size(); ++i) {
    const InputTensor& input = tensors.inputs[i];
    const void* const data = DataOf(input.role, tensors);
    // Versions; no method reads them.
    if (data == nullptr && input.bytes > 0) continue;
    v1::Tensor* const tensor = shape.add_tensors();
    tensor->set_role(input.role);
    tensor->set_dtype(request.tensors(static_cast<int>(i)).dtype());
    inputs.emplace_back(static_cast<const std::byte*>(data),
                        static_cast<size_t>(input.bytes));
  }
  for (int i = 0; i < request.shadows_size(); ++i) {
    auto shadow = std::make_unique<ShadowedMethod>();
    v1::CorrectRequest& message = shadow->message;
    message = shape;
    *message.mutable_method() = request.shadows(i);
    Result<Decoded> decoded = Decode(message, limits, {.memory = &inputs});
    for (const Violation& violation : decoded.violations) {
      result.violations.push_back(ByShadow(i, violation));
    }
    if (decoded.ok() && decoded.value.method.row_filter) {
      result.violations.push_back(
          {Concat("shadows[", i, "]"),
           "drops sequences before anything else, which is not described; "
           "leave its threshold out"});
    }
    if (decoded.ok() && !decoded.value.method.derived.empty()) {
      result.violations.push_back(
          {Concat("shadows[", i, "]"),
           "makes tensors before anything else, which is not described; leave "
           "it out"});
    }
    shadow->decoded = std::move(decoded.value);
    result.value.push_back(std::move(shadow));
  }
  return result;
}

int64_t ShadowBytes(const ShadowedMethods& methods) {
  if (methods.empty()) return 0;
  // Two of Weighed; and of each row of a method its length and offset.
  constexpr int64_t kPositionBytes = 2 * (sizeof(float) + sizeof(uint8_t));
  constexpr int64_t kRowBytes = 2 * sizeof(int64_t);
  const Layout& layout = methods[0]->decoded.layout;
  // One method has its means at a time.
  int64_t means = 0;
  for (const std::unique_ptr<ShadowedMethod>& method : methods) {
    means =
        std::max(means, kernels::TurnMeans::Bytes(method->decoded.method.spec,
                                                  layout.num_positions));
  }
  return means + kPositionBytes * layout.num_positions +
         kRowBytes * layout.num_sequences *
             static_cast<int64_t>(methods.size());
}

void DescribeShadows(const ShadowedMethods& methods,
                     const uint8_t* response_mask,
                     const kernels::StopRequest& stop,
                     v1::DiagnoseResponse* response) {
  if (methods.empty()) return;
  const std::unique_ptr<kernels::Corrector> corrector =
      kernels::MakeCpuCorrector(1);
  const auto positions =
      static_cast<size_t>(methods[0]->decoded.layout.num_positions);
  Weighed ratios(positions);
  Weighed method(positions);
  std::optional<RatioSource> source;  // of `ratios`
  for (const std::unique_ptr<ShadowedMethod>& shadowed : methods) {
    const Decoded& decoded = shadowed->decoded;
    const CorrectionSpec& spec = decoded.method.spec;
    Batch batch = BatchOf(decoded);
    batch.response_mask = response_mask;
    if (source != spec.drift_source) {
      source = spec.drift_source;
      if (!Weigh(corrector.get(), RatiosOf(*source), batch, stop, &ratios)) {
        return;
      }
    }
    const std::optional<kernels::BatchSums> sums =
        Weigh(corrector.get(), spec, batch, stop, &method);
    if (!sums) return;
    const bool has_weights = spec.weight.level != kernels::Level::kNone;
    EncodeShadow(
        decoded.method, *sums,
        kernels::doctor::EffectOf(
            batch, ratios.kept.data(), ratios.weights.data(),
            method.kept.data(), has_weights ? method.weights.data() : nullptr),
        response->add_shadows());
  }
}

}  // namespace counterweight::server
