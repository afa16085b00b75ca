// Audited rows of a DiagnoseRequest. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_AUDIT_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_AUDIT_H_

#include <string>

#include "counterweight/v1/diagnosis.pb.h"
#include "kernels/batch.h"
#include "kernels/doctor/audit.h"
#include "server/engine/codec_tensors.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// Adds the violations of the message; rows are below `num_sequences`.
void CheckAudit(const v1::Audit& audit, const Tensors& tensors,
                int64_t num_sequences, Violations* violations);

// REQUIRES: no violations, and a batch in host memory.
v1::AuditSummary MeasureAudit(const v1::Audit& audit,
                              const kernels::Batch& batch);

// AuditSummary::sentence of such rows, without an alarm.
std::string SentenceOfAudit(const kernels::doctor::AuditedDrift& drift);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_AUDIT_H_
