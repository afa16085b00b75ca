#include "client/cpp/bench/batch.h"

#include <bit>
#include <cstring>
#include <random>
#include <utility>

namespace counterweight::bench {
namespace {

using client::Status;

// Spread of log-probs between engines, and between policy versions, in nats, as
// in a healthy asynchronous run.
constexpr float kEngineDrift = 0.02F;
constexpr float kUpdateDrift = 0.05F;

// Rounds towards zero; the rounding mode does not matter here.
uint16_t ToBf16(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

// For magnitudes from 2^-14 to 65504; smaller ones become 0.
uint16_t ToF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t exponent = bits >> 23 & 0xff;
  if (exponent < 113) return static_cast<uint16_t>(sign);
  return static_cast<uint16_t>(sign | ((exponent - 112) << 10) |
                               (bits >> 13 & 0x3ff));
}

size_t ElementBytes(v1::DType dtype) {
  if (dtype == v1::D_TYPE_F32) return sizeof(float);
  return dtype == v1::D_TYPE_U8 ? 1 : sizeof(uint16_t);
}

void Store(v1::DType dtype, const std::vector<float>& values, std::byte* to) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == v1::D_TYPE_F32) {
      std::memcpy(to + i * sizeof(float), &values[i], sizeof(float));
    } else if (dtype == v1::D_TYPE_U8) {
      to[i] = std::byte{values[i] != 0};
    } else {
      const uint16_t bits =
          dtype == v1::D_TYPE_BF16 ? ToBf16(values[i]) : ToF16(values[i]);
      std::memcpy(to + i * sizeof(bits), &bits, sizeof(bits));
    }
  }
}

struct Values {
  std::vector<float> rollout;
  std::vector<float> old;
  std::vector<float> current;
  std::vector<float> advantages;
  std::vector<float> mask;
};

Values Draw(std::mt19937_64& random, const std::vector<int64_t>& lengths,
            int64_t row_length) {
  Values values;
  std::exponential_distribution<float> surprise(2.0F);
  std::normal_distribution<float> noise(0.0F, 1.0F);
  for (const int64_t length : lengths) {
    const float advantage = noise(random);
    // Packed rows have no padding.
    for (int64_t t = 0; t < (row_length < 0 ? length : row_length); ++t) {
      const float rollout = -surprise(random);
      const float old = rollout + kEngineDrift * noise(random);
      values.rollout.push_back(rollout);
      values.old.push_back(old);
      values.current.push_back(old + kUpdateDrift * noise(random));
      values.advantages.push_back(advantage);
      values.mask.push_back(t < length ? 1.0F : 0.0F);
    }
  }
  return values;
}

}  // namespace

Status Memory::Allocate(client::Client* client, bool shared, size_t bytes,
                        client::Access access) {
  if (shared) return client->Allocate(bytes, access, &shared_);
  own_ = std::make_unique<std::byte[]>(bytes);
  return {};
}

Status Batch::AddTensor(const Settings& settings, v1::TensorRole role,
                        v1::DType dtype, const std::vector<float>& values,
                        client::Client* client) {
  const size_t bytes = values.size() * ElementBytes(dtype);
  Memory memory;
  Status status =
      memory.Allocate(client, settings.allocate, bytes, client::Access::kInput);
  if (!status.ok()) return status;
  Store(dtype, values, memory.data());
  request_.inputs.push_back({role, dtype, memory.data(), bytes});
  memory_.push_back(std::move(memory));
  return {};
}

Status Batch::Make(const Settings& settings, client::Client* client) {
  std::mt19937_64 random(settings.seed);
  std::uniform_int_distribution<int64_t> draw_length((settings.length + 1) / 2,
                                                     settings.length);
  std::vector<int64_t> lengths(static_cast<size_t>(settings.sequences));
  for (int64_t& length : lengths) length = draw_length(random);
  if (settings.packed) {
    client::SetPacked(lengths, &request_);
  } else {
    client::SetPadded(settings.sequences, settings.length, &request_);
  }
  *request_.header.mutable_method() = settings.method;
  request_.header.set_compute_loss(settings.loss);
  request_.header.set_omit_metrics(!settings.metrics);
  const Values values =
      Draw(random, lengths, settings.packed ? -1 : settings.length);
  num_positions_ = static_cast<int64_t>(values.mask.size());

  Status status;
  const auto add = [&](v1::TensorRole role, v1::DType dtype,
                       const std::vector<float>& numbers) {
    if (status.ok()) {
      status = AddTensor(settings, role, dtype, numbers, client);
    }
  };
  add(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, settings.dtype, values.rollout);
  add(v1::TENSOR_ROLE_OLD_LOG_PROBS, settings.dtype, values.old);
  if (settings.loss) {
    add(v1::TENSOR_ROLE_CURRENT_LOG_PROBS, settings.dtype, values.current);
    add(v1::TENSOR_ROLE_ADVANTAGES, settings.dtype, values.advantages);
  }
  add(v1::TENSOR_ROLE_RESPONSE_MASK, v1::D_TYPE_U8, values.mask);
  return status;
}

Status Outputs::Make(const Settings& settings, const Batch& batch,
                     client::Client* client) {
  for (const v1::TensorRole role : settings.outputs) {
    const int64_t elements = role == v1::TENSOR_ROLE_SEQUENCE_REASONS
                                 ? settings.sequences
                                 : batch.num_positions();
    const size_t element =
        role == v1::TENSOR_ROLE_KEEP_MASK ? 1
        : role == v1::TENSOR_ROLE_WEIGHTS || role == v1::TENSOR_ROLE_GRADIENT
            ? sizeof(float)
            : sizeof(uint16_t);
    const size_t bytes = static_cast<size_t>(elements) * element;
    Memory memory;
    Status status = memory.Allocate(client, settings.allocate, bytes,
                                    client::Access::kOutput);
    if (!status.ok()) return status;
    outputs_.push_back({role, memory.data(), bytes});
    memory_.push_back(std::move(memory));
  }
  return {};
}

}  // namespace counterweight::bench
