#include "server/call/correction.h"

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "server/call/status.h"
#include "server/engine/codec_declaration.h"
#include "server/engine/codec_publication.h"
#include "server/engine/correction_run.h"
#include "server/engine/request_scan.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

// Another process on the device holds its memory for about a training step.
constexpr double kRetryWhenDeviceFullSeconds = 1.0;

}  // namespace

grpc::Status ParseScanned(int64_t max_sequences, bool has_data,
                          google::protobuf::io::ZeroCopyInputStream* input,
                          Call* call, v1::CorrectRequest* request) {
  RequestScan scan(max_sequences, has_data);
  ScannedStream scanned(input, &scan);
  const bool parsed = request->ParseFromZeroCopyStream(&scanned);
  if (scan.violation()) return call->InvalidArgument({*scan.violation()});
  if (!parsed || scan.is_refused()) {
    return {grpc::StatusCode::INVALID_ARGUMENT,
            fmt::format("the request is not a {}: its bytes do not parse",
                        request->GetTypeName())};
  }
  // They would be kept while the request waits.
  request->DiscardUnknownFields();
  return grpc::Status::OK;
}

grpc::Status Correction::Parse(google::protobuf::io::ZeroCopyInputStream* input,
                               bool has_data) {
  return ParseScanned(compute_.config->Get()->max_sequences, has_data, input,
                      &call_, &request_);
}

grpc::Status Correction::Decode(PayloadSource source,
                                const std::function<grpc::Status()>& wanted) {
  RequestRecord& record = call_.record();
  if (!request_.request_id().empty()) record.request_id = request_.request_id();
  record.run = request_.labels().run();
  record.replica = request_.labels().replica();
  grpc::Status status = call_.MayWrite(record.run);
  if (!status.ok()) return status;
  if (HasCalmBound(request_.method())) {
    status = ResolveBound();
    if (!status.ok()) return status;
  }
  source.is_wanted = [&] {
    if (status.ok()) status = wanted();
    return status.ok();
  };
  const std::shared_ptr<const Config> config = compute_.config->Get();
  Result<Decoded> decoded = server::Decode(
      request_, {config->max_tokens, config->max_sequences}, source);
  if (!status.ok()) return status;
  if (!decoded.ok()) return call_.InvalidArgument(decoded.violations);
  if (calm_bound_ && !IsOnHost(decoded.value.tensors)) {
    return call_.InvalidArgument(
        {{calm_bound_->field,
          "needs log-probs in host memory, where the run's weights are "
          "counted"}});
  }
  record.method = decoded.value.method.name;
  record.sequences = decoded.value.layout.num_sequences;
  const auto declared =
      record.run.empty() ? nullptr : report_.drift->Declared(record.run);
  if (declared != nullptr) {
    std::string warning = WarnOfOtherMethod(
        record.run, *declared, calm_bound_ ? asked_method_ : request_.method(),
        ContextOf(request_, decoded.value));
    is_other_method_ = !warning.empty();
    if (!warning.empty()) decoded.value.warnings.push_back(std::move(warning));
  }
  if (calm_bound_ && !calm_level_.is_calm &&
      calm_level_.steps >= static_cast<int64_t>(kMostCalmSteps)) {
    decoded.value.warnings.push_back(
        WarnOfFewWeights(*calm_bound_, calm_level_));
  }
  decoded_.emplace(std::move(decoded.value));
  return grpc::Status::OK;
}

grpc::Status Correction::ResolveBound() {
  Result<CalmBound> bound = ReadCalmBound(request_.method());
  bound.violations.Append(CheckCalmLabels(request_, bound.value));
  if (!bound.ok()) return call_.InvalidArgument(bound.violations);
  const std::string& run = call_.record().run;
  const std::optional<CalmLevel> level =
      report_.drift->CalmLevelOf(run, call_.queue_client().peer,
                                 bound.value.weights, request_.labels().step());
  if (!level) {
    return call_.InvalidArgument(
        {{bound.value.field,
          fmt::format("run '{}' has {} bounds of other weights or quantiles "
                      "already, and keeps no more",
                      run, CalmHistories::kMost)}});
  }
  if (!level->is_calm && !bound.value.until) {
    return call_.InvalidArgument({NoCalmLevel(run, bound.value, *level)});
  }
  asked_method_ = request_.method();
  calm_bound_ = std::move(bound.value);
  calm_level_ = *level;
  SetBound(BoundOf(*calm_bound_, calm_level_), request_.mutable_method());
  return grpc::Status::OK;
}

grpc::Status Correction::Judge(const kernels::CorrectResult& result) {
  std::string_view event = "device_error";
  report_.metrics->CountDevice(result);
  switch (result.status) {
    case kernels::CorrectStatus::kOk:
      call_.record().tokens = result.sums.tokens;
      return grpc::Status::OK;
    case kernels::CorrectStatus::kNonFinite:
      report_.metrics->non_finite_rejections.Increment();
      return call_.InvalidArgument({ToViolation(result.non_finite)});
    case kernels::CorrectStatus::kBadVersion:
      return call_.InvalidArgument({ToViolation(result.bad_version)});
    case kernels::CorrectStatus::kBadMask:
      return call_.InvalidArgument(
          {ToViolation(result.bad_mask, decoded_->tensors)});
    case kernels::CorrectStatus::kStopped: {
      grpc::Status status = call_.StillWanted();
      // The clock may have been set back since the run checked it.
      return status.ok() ? grpc::Status::CANCELLED : status;
    }
    case kernels::CorrectStatus::kDeviceFull:
      return TryAgain(grpc::StatusCode::RESOURCE_EXHAUSTED,
                      "the device has no memory for this batch; try again, or "
                      "send a smaller batch",
                      kRetryWhenDeviceFullSeconds);
    case kernels::CorrectStatus::kDeviceError:
      break;
    case kernels::CorrectStatus::kDeviceLost:
      event = "device_lost";
      // Where one process cannot use a device any more, it often can use none.
      if (!compute_.corrector->IsAlive()) compute_.on_devices_lost();
      break;
  }
  return call_.InternalError(
      event, fmt::format("device {}: {}", result.device, result.device_error));
}

grpc::Status Correction::Encode(const kernels::CorrectResult& result) {
  const auto start = std::chrono::steady_clock::now();
  const Violations violations = server::Encode(*decoded_, result, &response_);
  if (!violations.empty()) return call_.InvalidArgument(violations);
  if (calm_bound_) {
    EncodeBound(*calm_bound_, calm_level_, &response_);
    if (!calm_level_.is_calm && !calm_batch_) {
      response_.add_warnings(
          WarnOfUncountedBatch(*calm_bound_, decoded_->omits_metrics));
    }
  }
  response_.set_request_id(call_.record().request_id);
  response_.set_numerics_version(kernels::kNumericsVersion);
  response_.set_backend(compute_.backend.name);
  const RequestRecord& record = call_.record();
  v1::Timing* const timing = response_.mutable_timing();
  timing->set_decode_seconds(record.decode_seconds);
  timing->set_queue_seconds(record.queue_seconds);
  timing->set_receive_seconds(record.receive_seconds);
  timing->set_compute_seconds(record.compute_seconds);
  // All but the serialization, which cannot include its own time.
  timing->set_encode_seconds(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count());
  return grpc::Status::OK;
}

void Correction::Publish(const kernels::CorrectResult& result) {
  const kernels::BatchSums& sums = result.sums;
  report_.metrics->tokens.Increment(static_cast<double>(sums.tokens));
  report_.metrics->sequences.Increment(static_cast<double>(sums.num_sequences));
  if (is_other_method_) {
    report_.drift->NoteMethod(call_.record().run, call_.queue_client().peer,
                              request_.request_id(), *is_other_method_);
  }
  if (decoded_->omits_metrics) return;
  const v1::Labels& labels = request_.labels();
  const std::optional<int64_t> version =
      labels.has_policy_version() ? std::optional(labels.policy_version())
                                  : std::nullopt;
  const Method& method = decoded_->method;
  const PublishedBatch batch = Published(method.spec, method.rule_names, sums);
  const std::optional<StepPart> part =
      PartOf(request_, *decoded_, result.partial);
  report_.drift->Publish({.client = call_.queue_client().peer,
                          .run = call_.record().run,
                          .replica = call_.record().replica,
                          .policy_version = version,
                          .request_id = request_.request_id(),
                          .batch = &batch,
                          .part = part ? &*part : nullptr,
                          .calm = calm_batch_ ? &*calm_batch_ : nullptr});
  if (examined_) {
    report_.drift->CountExamined(call_.record().run, call_.queue_client().peer,
                                 *examined_);
  }
}

bool Correction::WantsExamination() const {
  return !decoded_->omits_metrics && CanExamine(decoded_->tensors) &&
         report_.drift->WantsExamination(call_.record().run);
}

void Correction::Examine(const kernels::Batch& batch) {
  examined_ = ExamineBatch(batch);
}

bool Correction::WantsCalmWeights() const {
  return calm_bound_ && !calm_level_.is_calm && !decoded_->omits_metrics;
}

void Correction::CountCalmWeights(const kernels::Batch& batch) {
  const CalmWeights& weights = calm_bound_->weights;
  calm_batch_ = {.of = weights,
                 .step = request_.labels().step(),
                 .counts = kernels::doctor::CountWeights(batch, weights.spec)};
}

int64_t Correction::ObjectBytes() const {
  return static_cast<int64_t>(
             request_.SpaceUsedLong() +
             decoded_->layout.offsets.capacity() * sizeof(int64_t) +
             decoded_->groups.of_rows.capacity() * sizeof(int32_t)) +
         VersionBytes(*decoded_) + PassBytes(*decoded_);
}

}  // namespace counterweight::server
