// Reports of optimizer steps, read. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_STEP_REPORT_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_STEP_REPORT_H_

#include <string_view>

#include "counterweight/v1/correction_service.pb.h"
#include "server/engine/receipt.h"
#include "server/engine/result.h"

namespace counterweight::server {

// Returns all violations, or the report.
Result<StepReport> ReadStepReport(const v1::ReportStepRequest& request);

// The sentence that warns a trainer of this state of its step; empty for USED
// and UNSPECIFIED.
std::string_view WarningOf(v1::ReceiptState state);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_STEP_REPORT_H_
