#include "server/call/publish_call.h"

#include <utility>

#include "counterweight/v1/correction_service.pb.h"
#include "server/call/call.h"
#include "server/call/payload.h"
#include "server/engine/codec_publication.h"
#include "server/observe/drift_report.h"

namespace counterweight::server {
namespace {

grpc::Status Publish(const Config& config, DriftSeries* drift, Call* call,
                     grpc::ByteBuffer* bytes, grpc::ByteBuffer* response) {
  v1::PublishRequest request;
  grpc::Status status = ParseMessage(kMaxPublishBytes, bytes, &request);
  if (!status.ok()) return status;
  RequestRecord& record = call->record();
  if (!request.request_id().empty()) record.request_id = request.request_id();
  record.run = request.labels().run();
  record.replica = request.labels().replica();
  status = call->MayWrite(record.run);
  if (!status.ok()) return status;
  const Result<Publication> read =
      ReadPublication(request, {config.max_tokens, config.max_sequences});
  if (!read.ok()) return call->InvalidArgument(read.violations);
  const Publication& publication = read.value;
  record.tokens = publication.batch.sums.tokens;
  record.sequences = publication.batch.sums.num_sequences;
  drift->Publish({.client = call->queue_client().peer,
                  .run = publication.run,
                  .policy_version = publication.policy_version,
                  .request_id = publication.request_id,
                  .source = RecentIds::Source::kPublication,
                  .batch = &publication.batch,
                  .part = publication.part ? &*publication.part : nullptr});
  return SerializePayload(v1::PublishResponse(), response);
}

}  // namespace

void AnswerPublish(const AdmitContext* admit, const ReportContext* report,
                   std::string_view rpc,
                   const std::shared_ptr<UnaryCall>& unary,
                   grpc::ByteBuffer* request, std::string request_id) {
  Call call(admit, report, rpc, unary->context(), std::move(request_id));
  grpc::ByteBuffer response;
  const grpc::Status status = call.Guard([&] {
    return Publish(*admit->config->Get(), report->drift, &call, request,
                   &response);
  });
  call.record().response_bytes = static_cast<int64_t>(response.Length());
  call.EndStage("decode", &RequestRecord::decode_seconds);
  // Spans are of corrections.
  if (call.record().trace) call.record().trace->is_sampled = false;
  call.Record(status);
  unary->Finish(status, &response, nullptr);
}

}  // namespace counterweight::server
