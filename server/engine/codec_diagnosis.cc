#include "server/engine/codec_diagnosis.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "kernels/doctor/examine.h"
#include "server/engine/codec_attribution.h"
#include "server/engine/codec_audit.h"
#include "server/engine/codec_enums.h"
#include "server/engine/codec_labels.h"
#include "server/engine/examination.h"
#include "server/engine/names.h"

namespace counterweight::server {
namespace {

constexpr EnumPair<kernels::doctor::Severity, v1::Severity> kSeverities[] = {
    {kernels::doctor::Severity::kNote, v1::SEVERITY_NOTE, "NOTE"},
    {kernels::doctor::Severity::kWarning, v1::SEVERITY_WARNING, "WARNING"},
    {kernels::doctor::Severity::kError, v1::SEVERITY_ERROR, "ERROR"},
};
static_assert(IsWhole(kSeverities, v1::Severity_ARRAYSIZE,
                      kernels::doctor::Severity::kError));

v1::TensorRole RoleOf(kernels::doctor::Stream stream) {
  using kernels::doctor::Stream;
  switch (stream) {
    case Stream::kNone:
      return v1::TENSOR_ROLE_UNSPECIFIED;
    case Stream::kRollout:
      return v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS;
    case Stream::kOld:
      return v1::TENSOR_ROLE_OLD_LOG_PROBS;
    case Stream::kCurrent:
      return v1::TENSOR_ROLE_CURRENT_LOG_PROBS;
    case Stream::kMask:
      return v1::TENSOR_ROLE_RESPONSE_MASK;
    case Stream::kAdvantages:
      return v1::TENSOR_ROLE_ADVANTAGES;
  }
  return v1::TENSOR_ROLE_UNSPECIFIED;
}

void CheckTensors(const Tensors& tensors, Violations* violations) {
  if (CanExamine(tensors)) return;
  const int log_probs = tensors.has(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS) +
                        tensors.has(v1::TENSOR_ROLE_OLD_LOG_PROBS) +
                        tensors.has(v1::TENSOR_ROLE_CURRENT_LOG_PROBS);
  if (log_probs < 2) {
    violations->push_back(
        {"tensors",
         "two of rollout_log_probs, old_log_probs and current_log_probs are "
         "required: faults show in how they differ"});
  }
  if (tensors.device || tensors.on_device.mask || tensors.on_device.versions ||
      tensors.on_device.roles != 0) {
    violations->push_back(
        {"tensors", "must lie in the host's memory to be examined"});
  }
}

void CheckGroups(const v1::CorrectRequest& request, const Layout& layout,
                 Violations* violations) {
  if (request.group_ids_size() == 0 ||
      request.group_ids_size() == layout.num_sequences) {
    return;
  }
  violations->push_back({"group_ids", "must have one entry per sequence"});
}

// Inputs that are not examined, or only beside others that are absent.
std::vector<std::string> WarnOfUnexamined(const v1::CorrectRequest& request,
                                          const Tensors& tensors,
                                          bool has_versions) {
  std::vector<std::string> warnings;
  const auto warn = [&](bool is_unread, const char* text) {
    if (is_unread) warnings.emplace_back(text);
  };
  const bool has_pair = tensors.has(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS) &&
                        tensors.has(v1::TENSOR_ROLE_OLD_LOG_PROBS);
  warn(tensors.has(v1::TENSOR_ROLE_REF_LOG_PROBS),
       "ref_log_probs was sent, but is not examined");
  warn(request.group_ids_size() > 0 && !tensors.has(v1::TENSOR_ROLE_ADVANTAGES),
       "group_ids was sent, but is examined beside advantages only");
  warn(has_versions && !has_pair,
       "versions of tokens were sent, but are examined beside "
       "rollout_log_probs and old_log_probs only");
  warn(request.labels().has_policy_version() && !has_versions,
       "policy_version was sent, but is examined beside versions of tokens "
       "only");
  return warnings;
}

void EncodeFinding(const kernels::doctor::Finding& finding,
                   v1::Finding* message) {
  message->set_name(kernels::doctor::Describe(finding.name).text);
  message->set_severity(ToWire(kSeverities, finding.severity));
  message->set_confidence(finding.confidence);
  message->set_stream(RoleOf(finding.stream));
  // NaN: not tried.
  if (finding.observed == finding.observed) {
    message->set_observed(finding.observed);
  }
  if (finding.repaired == finding.repaired) {
    message->set_repaired(finding.repaired);
  }
  for (const kernels::doctor::Evidence& evidence : finding.evidence) {
    (*message->mutable_evidence())[evidence.name] = evidence.value;
  }
  if (finding.sequence >= 0) message->set_sequence(finding.sequence);
  if (finding.position >= 0) message->set_position(finding.position);
  message->set_sentence(kernels::doctor::Sentence(finding));
}

}  // namespace

Result<Patient> DecodePatient(const v1::CorrectRequest& request,
                              const RequestLimits& limits,
                              const PayloadSource& source) {
  Violations violations;
  CheckLabels(request.request_id(), request.labels(), &violations);
  Result<Layout> layout = ReadLayout(request.layout(), limits);
  violations.Append(layout.violations);
  Result<Tensors> tensors = ReadTensors(request, layout, source);
  violations.Append(tensors.violations);
  Result<Versions> versions = ReadVersions(request, layout, tensors.value);
  violations.Append(versions.violations);
  if (tensors.ok()) CheckTensors(tensors.value, &violations);
  if (layout.ok()) CheckGroups(request, layout.value, &violations);
  if (request.has_audit() && tensors.ok() && layout.ok()) {
    CheckAudit(request.audit(), tensors.value, layout.value.num_sequences,
               &violations);
  }
  if (!violations.empty()) return {{}, std::move(violations)};
  Result<ShadowedMethods> shadows = ReadShadows(request, limits, tensors.value);
  if (!shadows.ok()) return {{}, std::move(shadows.violations)};
  Patient patient{
      .layout = std::move(layout.value),
      .tensors = std::move(tensors.value),
      .versions = std::move(versions.value),
      .group_ids = {request.group_ids().begin(), request.group_ids().end()}};
  if (request.has_audit()) patient.audit = request.audit();
  patient.shadows = std::move(shadows.value);
  patient.warnings =
      WarnOfUnexamined(request, patient.tensors, patient.versions.came);
  return {std::move(patient), {}};
}

int64_t ExaminationBytes(const Patient& patient) {
  const int64_t mask =
      patient.tensors.has_shared_mask ? patient.layout.num_positions : 0;
  return ExaminationBytes(patient.layout.num_sequences,
                          kMostExaminedPositions) +
         mask + ShadowBytes(patient.shadows);
}

Violations Diagnose(const Patient& patient, const kernels::StopRequest& stop,
                    v1::DiagnoseResponse* response) {
  const Tensors& tensors = patient.tensors;
  kernels::Batch batch;
  batch.num_sequences = patient.layout.num_sequences;
  batch.offsets = patient.layout.offsets.data();
  std::copy(std::begin(tensors.views), std::end(tensors.views),
            std::begin(batch.tensors));
  batch.response_mask = tensors.response_mask;
  // The client may change a shared mask at any time.
  std::vector<uint8_t> mask;
  if (tensors.has_shared_mask) {
    mask.assign(tensors.response_mask,
                tensors.response_mask + patient.layout.num_positions);
    Violations violations =
        CheckMask(reinterpret_cast<const std::byte*>(mask.data()), tensors);
    if (!violations.empty()) return violations;
    batch.response_mask = mask.data();
  }
  const kernels::PolicyVersions versions = {
      .trained = patient.versions.trained,
      .of_positions = tensors.policy_versions,
      .spans = patient.versions.spans.data(),
      .num_spans = static_cast<int64_t>(patient.versions.spans.size()),
      .came = patient.versions.came};
  if (versions.came) batch.versions = &versions;
  response->mutable_warnings()->Add(patient.warnings.begin(),
                                    patient.warnings.end());
  DescribeShadows(patient.shadows, batch.response_mask, stop, response);
  if (patient.audit) {
    *response->mutable_audit() = MeasureAudit(*patient.audit, batch);
    if (patient.audit->rows_size() > 0) {
      // Other rows have none.
      batch.tensors[static_cast<int>(kernels::InputRole::kOld)] = {};
      if (!tensors.has(v1::TENSOR_ROLE_CURRENT_LOG_PROBS)) {
        response->add_warnings(
            "the batch was not examined: old_log_probs are those of audited "
            "rows alone");
        return {};
      }
    }
  }
  const kernels::doctor::Diagnosis found = kernels::doctor::Examine(
      batch, patient.group_ids.empty() ? nullptr : patient.group_ids.data());
  for (const kernels::doctor::Finding& finding : found.findings) {
    EncodeFinding(finding, response->add_findings());
  }
  if (found.attribution) {
    EncodeAttribution(*found.attribution, response->mutable_attribution());
  }
  response->set_tokens(found.tokens);
  response->set_examined_tokens(found.examined_tokens);
  response->set_examined_sequences(found.sequences);
  return {};
}

}  // namespace counterweight::server
