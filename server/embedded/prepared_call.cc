#include "server/embedded/prepared_call.h"

#include <algorithm>
#include <string>
#include <utility>

#include "server/embedded/decode.h"
#include "server/embedded/fork_guard.h"
#include "server/embedded/message.h"
#include "server/embedded/placement.h"
#include "server/engine/codec_enums.h"
#include "server/engine/names.h"

namespace counterweight::embedded {
namespace {

using server::Concat;
using server::Layout;
using server::Violations;

static_assert(server::AnswerForm::kLoss == CW_LOSS);
static_assert(server::AnswerForm::kTokens == CW_TOKENS);
static_assert(server::AnswerForm::kNonFiniteTokens == CW_NON_FINITE_TOKENS);
static_assert(server::AnswerForm::kPositiveLogProbs == CW_POSITIVE_LOG_PROBS);
static_assert(server::AnswerForm::kSeconds == CW_DECODE_SECONDS);
static_assert(server::AnswerForm::kFirstRule == CW_FIRST_RULE);
static_assert(kernels::kNumInputRoles + 2 <= CW_MAX_INPUTS);

// Fills *layout with a shape within the limits; false if it is not. Allocates
// only where an earlier layout was shorter.
bool ReadLayout(const cw_batch& batch, const server::RequestLimits& limits,
                Layout* layout) {
  const int64_t rows = batch.num_sequences;
  if (rows < 0 || rows > limits.max_sequences) return false;
  std::vector<int64_t>& offsets = layout->offsets;
  offsets.resize(static_cast<size_t>(rows) + 1);
  offsets[0] = 0;
  int64_t sum = 0;
  if (batch.sequence_lengths == nullptr) {
    const int64_t length = batch.length;
    // Division, because the product may overflow.
    if (length < 0 || (rows > 0 && length > limits.max_tokens / rows)) {
      return false;
    }
    for (int64_t i = 0; i < rows; ++i) {
      offsets[static_cast<size_t>(i) + 1] = sum += length;
    }
  } else {
    // A stated width is a reading of the contract.
    if (batch.length != -1) return false;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t length = batch.sequence_lengths[i];
      if (length < 0 || length > limits.max_tokens - sum) return false;
      offsets[static_cast<size_t>(i) + 1] = sum += length;
    }
  }
  layout->num_sequences = rows;
  layout->num_positions = sum;
  return true;
}

// Whether CUDA has to say where addresses are, in a fraction of a microsecond
// for each.
bool AsksForPlaces(const cw_batch& batch) {
  return batch.memory != CW_CUDA || batch.knows_places == 0;
}

// A shape beyond the limits counts as one with positions.
bool HasPositions(const cw_batch& batch, const server::RequestLimits& limits) {
  const int64_t rows = batch.num_sequences;
  if (batch.sequence_lengths == nullptr) return rows > 0 && batch.length != 0;
  return rows > limits.max_sequences ||
         std::any_of(batch.sequence_lengths, batch.sequence_lengths + rows,
                     [](int64_t length) { return length != 0; });
}

void Store(const kernels::PartialSums& sums, const cw_batch& batch) {
  if (batch.sums != nullptr) {
    double* at = std::copy(sums.whole.begin(), sums.whole.end(), batch.sums);
    at = std::copy(sums.narrow.begin(), sums.narrow.end(), at);
    std::copy(sums.wide.begin(), sums.wide.end(), at);
  }
  if (batch.maxima != nullptr) {
    std::copy(sums.maxima.begin(), sums.maxima.end(), batch.maxima);
  }
}

// Makes *reading the batch of `decoded`, which outlives it.
Failure Adopt(const server::Decoded& decoded, Memory inputs, Reading* reading) {
  const Violations violations = CheckInputs(decoded.tensors, inputs);
  if (!violations.empty()) return InvalidArgument(violations);
  reading->decoded = &decoded;
  reading->layout = decoded.layout;
  std::copy(inputs.begin(), inputs.end(), reading->inputs.begin());
  reading->batch = server::BatchOf(decoded);
  reading->versions = server::VersionsOf(decoded);
  reading->has_partial_sums = decoded.returns_sums;
  return {};
}

// The contract's form of a shape.
v1::Layout LayoutOf(const cw_batch& batch) {
  v1::Layout layout;
  if (batch.sequence_lengths == nullptr) {
    layout.mutable_padded()->set_num_sequences(batch.num_sequences);
    layout.mutable_padded()->set_length(batch.length);
    return layout;
  }
  v1::PackedLayout* const packed = layout.mutable_packed();
  packed->mutable_sequence_lengths()->Add(
      batch.sequence_lengths, batch.sequence_lengths + batch.num_sequences);
  if (batch.length != -1) packed->set_padded_length(batch.length);
  return layout;
}

}  // namespace

Failure PreparedCall::Read(const cw_request& request,
                           const server::PayloadSource& source) {
  const ForkGuard guard;
  if (!guard.is_safe()) return ForkedInside();
  return Decode(*engine_, request, source, &message_, &decoded_);
}

Failure PreparedCall::Make(std::shared_ptr<Engine> engine,
                           const cw_request& request,
                           std::unique_ptr<PreparedCall>* prepared) {
  std::unique_ptr<PreparedCall> made(new PreparedCall(std::move(engine)));
  Failure failure = made->Read(request, {.is_stream = true});
  if (!failure.ok()) return failure;
  // Each batch has its own.
  made->message_.clear_layout();
  made->form_ = server::AnswerForm(made->decoded_);
  made->Sign();
  *prepared = std::move(made);
  return {};
}

Failure PreparedCall::Make(std::shared_ptr<Engine> engine,
                           const cw_request& request,
                           std::unique_ptr<PreparedCall>* prepared,
                           Reading* reading) {
  const std::vector<std::span<const std::byte>> inputs = InputsOf(request);
  if (engine->computes_on_device()) {
    kernels::Corrector* corrector = nullptr;
    Failure failure = engine->Use(&corrector);
    if (!failure.ok()) return failure;
    const Violations violations =
        CheckPlaces(*corrector, request.memory, inputs);
    if (!violations.empty()) return InvalidArgument(violations);
  }
  std::unique_ptr<PreparedCall> made(new PreparedCall(std::move(engine)));
  Failure failure = made->Read(
      request, {.memory = &inputs, .is_on_device = request.memory == CW_CUDA});
  if (!failure.ok()) return failure;
  made->Sign();
  failure = Adopt(made->decoded_, inputs, reading);
  *prepared = std::move(made);
  return failure;
}

void PreparedCall::Sign() {
  signature_.struct_size = sizeof(signature_);
  for (const v1::Tensor& tensor : message_.tensors()) {
    signature_.inputs[signature_.num_inputs++] = {tensor.role(),
                                                  tensor.dtype()};
  }
  for (const v1::TensorRole role : decoded_.outputs.roles) {
    signature_.outputs[signature_.num_outputs++] = {role,
                                                    server::OutputDType(role)};
  }
  if (!decoded_.omits_metrics) {
    for (const std::string& rule : decoded_.method.rule_names) {
      rules_.push_back(rule.c_str());
    }
  }
  for (const std::string& metric : form_.metrics()) {
    metrics_.push_back(metric.c_str());
  }
  signature_.rules = rules_.data();
  signature_.num_rules = rules_.size();
  signature_.metrics = metrics_.data();
  signature_.num_metrics = metrics_.size();
  signature_.num_numbers = form_.num_numbers();
  if (!decoded_.returns_sums) return;
  const kernels::PartialSums sums =
      kernels::NoSums(decoded_.method.spec, decoded_.versions.came);
  signature_.num_sums =
      sums.whole.size() + sums.narrow.size() + sums.wide.size();
  signature_.num_maxima = sums.maxima.size();
}

bool PreparedCall::ReadShape(const cw_batch& batch, Reading* reading) const {
  // A first pass refuses tensors on a device, which the plan may not have been
  // made for.
  if (!decoded_.is_of_any_shape ||
      (batch.memory == CW_CUDA && decoded_.HasFirstPass()) ||
      !ReadLayout(batch, engine_->limits(), &reading->layout)) {
    return false;
  }
  kernels::Batch& view = reading->batch;
  view = {};
  view.num_sequences = reading->layout.num_sequences;
  view.offsets = reading->layout.offsets.data();
  const auto& tensors = decoded_.tensors.inputs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const server::InputTensor& tensor = tensors[i];
    const void* const data = batch.inputs[i];
    const int64_t bytes = reading->layout.num_positions * tensor.element_size;
    if (reinterpret_cast<uintptr_t>(data) %
            static_cast<uintptr_t>(tensor.element_size) !=
        0) {
      return false;
    }
    reading->inputs[i] = {static_cast<const std::byte*>(data),
                          static_cast<size_t>(bytes)};
    if (tensor.role == v1::TENSOR_ROLE_RESPONSE_MASK) {
      view.response_mask = static_cast<const uint8_t*>(data);
      if (batch.memory == CW_HOST &&
          server::FirstNonBoolean(
              {view.response_mask, static_cast<size_t>(bytes)}) >= 0) {
        return false;
      }
    } else if (const auto slot =
                   server::FromWire(server::kInputRoles, tensor.role)) {
      const auto at = static_cast<size_t>(*slot);
      view.tensors[at] = {data, decoded_.tensors.views[at].dtype};
    }
  }
  reading->versions = {};
  reading->decoded = &decoded_;
  reading->has_partial_sums = decoded_.returns_sums;
  return true;
}

Failure PreparedCall::CheckInputAddresses(const kernels::Corrector& corrector,
                                          const cw_batch& batch) const {
  if (!HasPositions(batch, engine_->limits())) return {};
  // Sizes that are not 0 serve: the shape is not read yet.
  std::array<std::span<const std::byte>, CW_MAX_INPUTS> inputs;
  for (size_t i = 0; i < signature_.num_inputs; ++i) {
    if (batch.inputs[i] == nullptr) {
      return Misuse("batch.inputs[] must not be NULL");
    }
    inputs[i] = {static_cast<const std::byte*>(batch.inputs[i]), 1};
  }
  if (!AsksForPlaces(batch) || !engine_->computes_on_device()) return {};
  const Violations violations = CheckPlaces(
      corrector, batch.memory, {inputs.data(), signature_.num_inputs});
  return violations.empty() ? Failure() : InvalidArgument(violations);
}

Failure PreparedCall::ReadAsRequest(const cw_batch& batch,
                                    Reading* reading) const {
  const ForkGuard guard;
  if (!guard.is_safe()) return ForkedInside();
  reading->message = message_;
  *reading->message.mutable_layout() = LayoutOf(batch);
  const server::Result<Layout> layout =
      server::ReadLayout(reading->message.layout(), engine_->limits());
  std::vector<std::span<const std::byte>> inputs;
  for (size_t i = 0; i < signature_.num_inputs; ++i) {
    const int64_t element = server::ElementSize(
        reading->message.tensors(static_cast<int>(i)).dtype());
    inputs.emplace_back(
        static_cast<const std::byte*>(batch.inputs[i]),
        static_cast<size_t>(layout.value.num_positions * element));
  }
  server::Result<server::Decoded> decoded = server::Decode(
      reading->message, engine_->limits(),
      {.memory = &inputs, .is_on_device = batch.memory == CW_CUDA});
  if (!decoded.ok()) return InvalidArgument(decoded.violations);
  reading->own = std::move(decoded.value);
  return Adopt(reading->own, inputs, reading);
}

Failure PreparedCall::Place(const kernels::Corrector& corrector,
                            const cw_batch& batch, const Reading& reading,
                            kernels::Outputs* outputs) const {
  Violations violations;
  std::array<cw_bytes, CW_MAX_OUTPUTS> places{};
  size_t num_places = 0;
  for (size_t i = 0; i < signature_.num_outputs; ++i) {
    void* const data = batch.outputs[i];
    if (data == nullptr) continue;
    const v1::TensorRole role = decoded_.outputs.roles[i];
    const auto size =
        static_cast<size_t>(server::OutputBytes(role, reading.layout));
    CheckPlace(
        AsksForPlaces(batch) ? &corrector : nullptr, batch.memory,
        {role, data, size, server::ElementSize(server::OutputDType(role))},
        {reading.inputs.data(), signature_.num_inputs},
        {places.data(), num_places}, &violations);
    places[num_places++] = {data, size};
    server::PlaceOutput(role, static_cast<std::byte*>(data), outputs);
  }
  return violations.empty() ? Failure() : InvalidArgument(violations);
}

Failure PreparedCall::ReadBatch(const cw_batch& batch, Reading* reading) const {
  if (batch.memory == CW_CUDA && !engine_->computes_on_device()) {
    return Misuse(
        "batch.memory is CW_CUDA, but the handle computes on the CPU; open one "
        "with backend \"cuda\"");
  }
  kernels::Corrector* corrector = nullptr;
  Failure failure = engine_->Use(&corrector);
  if (failure.ok()) failure = CheckInputAddresses(*corrector, batch);
  if (!failure.ok() || ReadShape(batch, reading)) return failure;
  return ReadAsRequest(batch, reading);
}

Failure PreparedCall::Run(const cw_batch& batch) const {
  StageClock clock;
  const Cancellation cancellation(batch.stop, batch.timeout_seconds);
  std::unique_ptr<Reading> reading = TakeReading();
  Failure failure = ReadBatch(batch, reading.get());
  if (!failure.ok()) return failure;
  const double decode_seconds = clock.Next();
  kernels::CorrectResult result;
  failure = Run(batch, *reading, cancellation, &result);
  if (!failure.ok()) return failure;
  const double compute_seconds = clock.Next();
  // A batch may turn out to be wrong only by its sums.
  const server::Decoded& decoded = *reading->decoded;
  const Violations violations = form_.Write(decoded, result, batch.numbers);
  if (!violations.empty()) return InvalidArgument(violations);
  if (decoded.returns_sums) {
    server::Identify(decoded.partial, &result.partial);
    Store(result.partial, batch);
  }
  batch.numbers[CW_DECODE_SECONDS] = decode_seconds;
  batch.numbers[CW_COMPUTE_SECONDS] = compute_seconds;
  batch.numbers[CW_ENCODE_SECONDS] = clock.Next();
  Keep(std::move(reading));
  return {};
}

Failure PreparedCall::Run(const cw_batch& batch, const Reading& reading,
                          const Cancellation& cancellation,
                          kernels::CorrectResult* result) const {
  kernels::Corrector* corrector = nullptr;
  Failure failure = engine_->Use(&corrector);
  if (!failure.ok()) return failure;
  kernels::Outputs outputs;
  outputs.partial_sums = reading.has_partial_sums;
  failure = Place(*corrector, batch, reading, &outputs);
  if (!failure.ok()) return failure;
  return Compute(corrector, *reading.decoded, reading.batch, reading.versions,
                 outputs, {batch.memory, batch.stream}, cancellation, result);
}

Failure PreparedCall::Describe(const double* numbers, int32_t format,
                               Answer* answer) const {
  const ForkGuard guard;
  if (!guard.is_safe()) return ForkedInside();
  v1::CorrectResponse response;
  form_.Describe(decoded_, numbers, &response);
  response.set_backend(backend());
  return Write(response, format, &answer->text);
}

const char* PreparedCall::backend() const {
  return engine_->computes_on_device() ? "cuda" : "cpu";
}

std::unique_ptr<Reading> PreparedCall::TakeReading() const {
  std::unique_ptr<Reading> reading(spare_.exchange(nullptr));
  return reading != nullptr ? std::move(reading) : std::make_unique<Reading>();
}

void PreparedCall::Keep(std::unique_ptr<Reading> reading) const {
  // Versions and blocks of a large batch would stay for the plan's life.
  reading->own = {};
  reading->message.Clear();
  delete spare_.exchange(reading.release());
}

}  // namespace counterweight::embedded
