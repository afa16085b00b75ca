// Methods that runs declare, up to the page that Prometheus reads.
//
// Input: a DeclareRunRequest.
//
// Checks: an accepted declaration can be shown, replaces nothing when it is
// sent again, and has no other method than itself.
#include <cstdint>
#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"
#include "server/engine/codec_declaration.h"
#include "server/observe/drift_series.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/laws.h"

namespace counterweight::fuzz {
namespace {

void CheckRequest(const std::string& bytes) {
  v1::DeclareRunRequest request;
  if (!request.ParseFromString(bytes)) return;
  const auto read = server::ReadDeclaration(request);
  ExpectReadable(read.violations);
  if (!read.ok()) return;
  prometheus::Registry registry;
  server::DriftSeries series({.max_runs = 2, .max_runs_per_client = 2},
                             &registry);
  const server::Declaration& declaration = read.value;
  Expect(series.Declare(declaration, "client") == nullptr,
         "the first declaration replaces nothing");
  const server::DeclaredMethodPtr before =
      series.Declare(declaration, "client");
  Expect(before == declaration.method, "it is kept with the run");
  Expect(server::AnswerTo(declaration, before.get()).warnings_size() ==
             static_cast<int>(declaration.warnings.size()),
         "a declaration that is sent again replaces nothing");
  Expect(
      server::WarnOfOtherMethod(declaration.run, *before, request.method(), {})
          .empty(),
      "a method is no other than itself");
  server::DeclaredMethod other = *before;
  other.bytes += "\x78\x01";  // a field that no method has
  Expect(server::WarnOfOtherMethod(declaration.run, other, request.method(), {})
             .empty(),
         "nor if it is written in another way");
  Expect(!prometheus::TextSerializer().Serialize(registry.Collect()).empty(),
         "a declaration can be shown");
}

}  // namespace
}  // namespace counterweight::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  counterweight::fuzz::SilenceLibraries();
  counterweight::fuzz::CheckRequest({data, data + size});
  return 0;
}
