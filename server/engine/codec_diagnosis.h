// Decodes a batch for the doctor, and encodes its findings. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_DIAGNOSIS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_DIAGNOSIS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "kernels/corrector.h"
#include "server/engine/codec_layout.h"
#include "server/engine/codec_shadow.h"
#include "server/engine/codec_tensors.h"
#include "server/engine/codec_versions.h"
#include "server/engine/result.h"

namespace counterweight::server {

// A valid DiagnoseRequest. Its views point into the request, which must outlive
// it, or into regions that it keeps.
struct Patient {
  Layout layout;
  Tensors tensors;
  Versions versions;
  std::vector<int64_t> group_ids;
  std::optional<v1::Audit> audit;
  ShadowedMethods shadows;
  std::vector<std::string> warnings;
};

// Reads the fields of a DiagnoseRequest, which CorrectRequest has under the
// same numbers.
Result<Patient> DecodePatient(const v1::CorrectRequest& request,
                              const RequestLimits& limits,
                              const PayloadSource& source);

// Bytes that an examination takes beside the request and the patient.
int64_t ExaminationBytes(const Patient& patient);

// Examines the batch, and fills all of *response but request_id. Violations are
// those of a mask in shared memory. Once `stop` returns true, shadows are
// missing.
Violations Diagnose(const Patient& patient, const kernels::StopRequest& stop,
                    v1::DiagnoseResponse* response);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_DIAGNOSIS_H_
