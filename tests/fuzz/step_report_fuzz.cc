// Steps that trainers report, up to the page that Prometheus reads.
//
// Input: a ReportStepRequest.
//
// Checks: an accepted report can be shown, counts once, and has one state.
#include <cstdint>
#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"
#include "server/engine/codec_step_report.h"
#include "server/observe/drift_series.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/laws.h"

namespace counterweight::fuzz {
namespace {

void CheckRequest(const std::string& bytes) {
  v1::ReportStepRequest request;
  if (!request.ParseFromString(bytes)) return;
  const auto read = server::ReadStepReport(request);
  ExpectReadable(read.violations);
  if (!read.ok()) return;
  prometheus::Registry registry;
  server::DriftSeries series({.max_runs = 2, .max_runs_per_client = 2},
                             &registry);
  const auto page = [&] {
    return prometheus::TextSerializer().Serialize(registry.Collect());
  };
  const v1::ReceiptState state = series.Report(read.value, "client");
  const bool has_verdict = state != v1::RECEIPT_STATE_UNSPECIFIED;
  Expect(!has_verdict || (read.value.issued && read.value.applied),
         "a verdict has two sides");
  Expect(server::WarningOf(state).empty() ==
             (!has_verdict || state == v1::RECEIPT_STATE_USED),
         "a fault has its sentence");
  const std::string once = page();
  Expect(series.Report(read.value, "client") == state && page() == once,
         "a report that is sent again counts no more");
}

}  // namespace
}  // namespace counterweight::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  counterweight::fuzz::SilenceLibraries();
  counterweight::fuzz::CheckRequest({data, data + size});
  return 0;
}
