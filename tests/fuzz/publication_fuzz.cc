// Sums that clients publish, up to the page that Prometheus reads.
//
// Input: a PublishRequest.
//
// Checks: accepted sums can be written, read and shown.
#include <cstdint>
#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"
#include "server/engine/codec_publication.h"
#include "server/engine/message_bytes.h"
#include "server/observe/drift_series.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/laws.h"

namespace counterweight::fuzz {
namespace {

void Show(const server::Publication& publication) {
  prometheus::Registry registry;
  server::DriftSeries series(
      {.max_runs = 2, .max_runs_per_client = 2, .last_batches = 2}, &registry);
  series.Publish({.client = "client",
                  .run = publication.run,
                  .policy_version = publication.policy_version,
                  .request_id = publication.request_id,
                  .batch = &publication.batch});
  Expect(!prometheus::TextSerializer().Serialize(registry.Collect()).empty(),
         "a batch that is taken can be shown");
}

void CheckRequest(const std::string& bytes) {
  v1::PublishRequest request;
  if (!request.ParseFromString(bytes)) return;
  const auto read = server::ReadPublication(request, {});
  ExpectReadable(read.violations);
  if (!read.ok()) return;
  Show(read.value);
  const v1::Method& method = request.has_method()
                                 ? request.method()
                                 : request.method_of_batch().method();
  const v1::PublishRequest written =
      server::WritePublication(read.value, method);
  const auto again = server::ReadPublication(written, {});
  Expect(again.ok(), "what is written can be read");
  Expect(server::MessageBytes(server::WritePublication(again.value, method)) ==
             server::MessageBytes(written),
         "it says the same");
}

}  // namespace
}  // namespace counterweight::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  counterweight::fuzz::SilenceLibraries();
  counterweight::fuzz::CheckRequest({data, data + size});
  return 0;
}
