// The RPCs Publish, of a batch that its sender corrected, as sums, ReportStep,
// of an optimizer step as its trainer saw it, and DeclareRun, of the method
// that a run is to have.
#ifndef COUNTERWEIGHT_SERVER_CALL_PUBLISH_CALL_H_
#define COUNTERWEIGHT_SERVER_CALL_PUBLISH_CALL_H_

#include <cstdint>

#include "server/call/instant_call.h"
#include "server/call/service_context.h"

namespace counterweight::server {

// Largest message, decompressed; one with everything has 5 KiB.
inline constexpr int64_t kMaxPublishBytes = int64_t{64} << 10;

// The arguments must outlive the answer.
InstantAnswer AnswerToPublish(const AdmitContext* admit,
                              const ReportContext* report);
InstantAnswer AnswerToReportStep(const ReportContext* report);
InstantAnswer AnswerToDeclareRun(const ReportContext* report);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_PUBLISH_CALL_H_
