#include "server/engine/codec_attribution.h"

#include <vector>

namespace counterweight::server {
namespace {

v1::TensorRole LogProbs(kernels::InputRole role) {
  switch (role) {
    case kernels::InputRole::kRollout:
      return v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS;
    case kernels::InputRole::kOld:
      return v1::TENSOR_ROLE_OLD_LOG_PROBS;
    case kernels::InputRole::kCurrent:
      return v1::TENSOR_ROLE_CURRENT_LOG_PROBS;
    case kernels::InputRole::kAdvantages:
    case kernels::InputRole::kRef:
    case kernels::InputRole::kMeans:
    case kernels::InputRole::kOtherMeans:
    case kernels::InputRole::kZeros:
      break;
  }
  return v1::TENSOR_ROLE_UNSPECIFIED;
}

// Sets an optional field; NaN: unknown, and absent.
template <class Message>
void SetKnown(double value, void (Message::*set)(double), Message* message) {
  if (value == value) (message->*set)(value);
}

void EncodeCauses(const kernels::doctor::Causes& causes, v1::Causes* message) {
  message->set_k3(causes.k3);
  message->set_kl(causes.kl);
  SetKnown(causes.k3_engine_staleness, &v1::Causes::set_k3_engine_staleness,
           message);
  SetKnown(causes.k3_update, &v1::Causes::set_k3_update, message);
  SetKnown(causes.k3_interaction, &v1::Causes::set_k3_interaction, message);
  SetKnown(causes.kl_engine_staleness, &v1::Causes::set_kl_engine_staleness,
           message);
  SetKnown(causes.kl_update, &v1::Causes::set_kl_update, message);
  SetKnown(causes.k3_engine, &v1::Causes::set_k3_engine, message);
  message->set_fresh_tokens(causes.fresh_tokens);
  message->set_fresh_k3(causes.fresh_k3);
}

void EncodeBuckets(const std::vector<kernels::doctor::Bucket>& buckets,
                   google::protobuf::RepeatedPtrField<v1::Bucket>* messages) {
  for (const kernels::doctor::Bucket& bucket : buckets) {
    v1::Bucket* const message = messages->Add();
    message->set_first(bucket.first);
    message->set_tokens(bucket.tokens);
    message->set_log_ratio(bucket.log_ratio);
    message->set_k3(bucket.k3);
    SetKnown(bucket.k3_expected, &v1::Bucket::set_k3_expected, message);
  }
}

}  // namespace

void EncodeAttribution(const kernels::doctor::Attribution& attribution,
                       v1::Attribution* message) {
  message->set_numerator(LogProbs(attribution.numerator));
  message->set_denominator(LogProbs(attribution.denominator));
  message->set_tokens(attribution.tokens);
  message->set_sequences(attribution.sequences);
  EncodeCauses(attribution.causes, message->mutable_causes());
  EncodeBuckets(attribution.by_magnitude, message->mutable_by_magnitude());
  EncodeBuckets(attribution.by_position, message->mutable_by_position());
  EncodeBuckets(attribution.by_length, message->mutable_by_length());
  EncodeBuckets(attribution.by_log_ratio, message->mutable_by_log_ratio());
  for (const kernels::doctor::HeavySequence& each : attribution.heaviest) {
    v1::HeavySequence* const heavy = message->add_heaviest();
    heavy->set_sequence(each.sequence);
    heavy->set_tokens(each.tokens);
    heavy->set_k3(each.k3);
  }
  message->set_sentence(kernels::doctor::Sentence(attribution));
}

}  // namespace counterweight::server
