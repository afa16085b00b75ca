#include "server/call/publish_call.h"

#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "server/call/payload.h"
#include "server/engine/codec_declaration.h"
#include "server/engine/codec_publication.h"
#include "server/engine/codec_step_report.h"
#include "server/observe/drift_report.h"

namespace counterweight::server {
namespace {

// Enters the request's id and labels into the call's record; checks that its
// sender may write the run.
template <class Request>
grpc::Status Identify(const Request& request, Call* call) {
  RequestRecord& record = call->record();
  if (!request.request_id().empty()) record.request_id = request.request_id();
  record.run = request.labels().run();
  record.replica = request.labels().replica();
  return call->MayWrite(record.run);
}

grpc::Status Publish(const Config& config, DriftSeries* drift, Call* call,
                     grpc::ByteBuffer* bytes, grpc::ByteBuffer* response) {
  v1::PublishRequest request;
  grpc::Status status = ParseMessage(kMaxPublishBytes, bytes, &request);
  if (status.ok()) status = Identify(request, call);
  if (!status.ok()) return status;
  const Result<Publication> read =
      ReadPublication(request, {config.max_tokens, config.max_sequences});
  if (!read.ok()) return call->InvalidArgument(read.violations);
  const Publication& publication = read.value;
  call->record().tokens = publication.batch.sums.tokens;
  call->record().sequences = publication.batch.sums.num_sequences;
  drift->Publish({.client = call->queue_client().peer,
                  .run = publication.run,
                  .replica = publication.replica,
                  .policy_version = publication.policy_version,
                  .request_id = publication.request_id,
                  .source = RecentIds::Source::kPublication,
                  .batch = &publication.batch,
                  .part = publication.part ? &*publication.part : nullptr});
  v1::PublishResponse message;
  if (const DeclaredMethodPtr declared = drift->Declared(publication.run);
      declared != nullptr && publication.facts) {
    const std::string warning =
        WarnOfOtherMethod(*declared, publication, request);
    drift->NoteMethod(publication.run, call->queue_client().peer,
                      publication.request_id, !warning.empty());
    if (!warning.empty()) message.add_warnings(warning);
  }
  return SerializePayload(message, response);
}

grpc::Status ReportStep(DriftSeries* drift, Call* call, grpc::ByteBuffer* bytes,
                        grpc::ByteBuffer* response) {
  v1::ReportStepRequest request;
  grpc::Status status = ParseMessage(kMaxPublishBytes, bytes, &request);
  if (status.ok()) status = Identify(request, call);
  if (!status.ok()) return status;
  const Result<StepReport> read = ReadStepReport(request);
  if (!read.ok()) return call->InvalidArgument(read.violations);
  call->record().tokens = read.value.tokens;
  const v1::ReceiptState state =
      drift->Report(read.value, call->queue_client().peer);
  v1::ReportStepResponse message;
  message.set_state(state);
  const std::string warning(WarningOf(state));
  if (!warning.empty()) message.add_warnings(warning);
  return SerializePayload(message, response);
}

grpc::Status DeclareRun(DriftSeries* drift, Call* call, grpc::ByteBuffer* bytes,
                        grpc::ByteBuffer* response) {
  v1::DeclareRunRequest request;
  grpc::Status status = ParseMessage(kMaxPublishBytes, bytes, &request);
  if (status.ok()) status = Identify(request, call);
  if (!status.ok()) return status;
  const Result<Declaration> read = ReadDeclaration(request);
  if (!read.ok()) return call->InvalidArgument(read.violations);
  call->record().method = read.value.method->name;
  const DeclaredMethodPtr before =
      drift->Declare(read.value, call->queue_client().peer);
  return SerializePayload(AnswerTo(read.value, before.get()), response);
}

}  // namespace

InstantAnswer AnswerToPublish(const AdmitContext* admit,
                              const ReportContext* report) {
  return [admit, report](Call* call, grpc::ByteBuffer* request,
                         grpc::ByteBuffer* response) {
    return Publish(*admit->config->Get(), report->drift, call, request,
                   response);
  };
}

InstantAnswer AnswerToReportStep(const ReportContext* report) {
  return [report](Call* call, grpc::ByteBuffer* request,
                  grpc::ByteBuffer* response) {
    return ReportStep(report->drift, call, request, response);
  };
}

InstantAnswer AnswerToDeclareRun(const ReportContext* report) {
  return [report](Call* call, grpc::ByteBuffer* request,
                  grpc::ByteBuffer* response) {
    return DeclareRun(report->drift, call, request, response);
  };
}

}  // namespace counterweight::server
