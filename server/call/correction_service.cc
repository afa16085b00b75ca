// The steps of a Correct, with their sources:
//
//   1. call/unary_call, call/arrivals: the message arrives.
//   2. call/admission_wait, call/admission: it waits for room, or is refused.
//   3. call/executor: it waits for a worker (stage queue).
//   4. call/payload, engine/request_scan: bytes become a CorrectRequest.
//   5. engine/codec, engine/dialects: a spec and views of the batch, or all
//      violations (stage decode).
//   6. engine/correction_run, kernels/corrector: tensors of the response, or
//      shared memory (stage compute).
//   7. engine/codec, call/payload: metrics and rules become bytes (stage
//      encode).
//   8. call/correction, observe/drift_series: drift is published once per
//      request_id, unless the deadline passed or the client left.
//   9. call/call: counters and one log line; the place is free.
//
// CorrectStream has steps 2 and 5 for its header, and then computes rows while
// chunks arrive (stage receive). Publish, ReportStep and DeclareRun have steps
// 1, 8 and 9; Diagnose, MergeSums and GroupAdvantages have all but 8.
#include "server/call/correction_service.h"

#include <random>
#include <utility>

#include "counterweight/v1/correction_service.grpc.pb.h"
#include "google/protobuf/descriptor.h"
#include "server/base/code_name.h"
#include "server/base/version.h"
#include "server/call/correct_stream.h"
#include "server/call/correct_work.h"
#include "server/call/diagnose_work.h"
#include "server/call/group_work.h"
#include "server/call/merge_work.h"
#include "server/call/payload.h"
#include "server/call/peer.h"
#include "server/call/publish_call.h"
#include "server/engine/codec.h"
#include "server/engine/codec_server_info.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

constexpr char kCorrectStream[] =
    "/counterweight.v1.CorrectionService/CorrectStream";

// The service as reflection knows it, which lists registered services only:
// the method that streams on the wire. A unary one would be read by gRPC, so
// that all others are the generic service's.
class Registered final
    : public v1::CorrectionService::WithRawCallbackMethod_CorrectStream<
          v1::CorrectionService::Service> {
 public:
  using Begin = std::function<RawReactor*(grpc::CallbackServerContext*)>;

  explicit Registered(Begin correct_stream)
      : correct_stream_(std::move(correct_stream)) {
    const auto* const service =
        v1::CorrectRequest::descriptor()->file()->pool()->FindServiceByName(
            v1::CorrectionService::service_full_name());
    for (int i = 0; i < service->method_count(); ++i) {
      if (service->method(i)->name() != "CorrectStream") MarkMethodGeneric(i);
    }
  }

  RawReactor* CorrectStream(grpc::CallbackServerContext* context) override {
    return correct_stream_(context);
  }

 private:
  const Begin correct_stream_;
};

uint64_t RandomPrefix() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

const CorrectionService::Rpc CorrectionService::kRpcs[] = {
    {"/counterweight.v1.CorrectionService/Correct",
     [](CorrectionService* self, std::string_view rpc) {
       return self->Compute(rpc, [self](Call* call) {
         return std::make_unique<CorrectWork>(&self->compute_, &self->report_,
                                              call);
       });
     }},
    {kCorrectStream,
     [](CorrectionService* self, std::string_view rpc) -> Begin {
       return [self, rpc](grpc::CallbackServerContext* context) {
         return CorrectStream::Start(
             &self->admit_, &self->compute_, &self->report_, rpc, context,
             self->MakeRequestId(), self->admit_.uses->Use());
       };
     }},
    {"/counterweight.v1.CorrectionService/ListMethods",
     [](CorrectionService* self, std::string_view rpc) {
       return self->AnswerWith(rpc, [](const grpc::CallbackServerContext&) {
         auto message = std::make_unique<v1::ListMethodsResponse>();
         EncodeMethods(message.get());
         return message;
       });
     }},
    {"/counterweight.v1.CorrectionService/GetServerInfo",
     [](CorrectionService* self, std::string_view rpc) {
       return self->AnswerWith(
           rpc, [self](const grpc::CallbackServerContext& context) {
             return self->ServerInfo(context);
           });
     }},
    {"/counterweight.v1.CorrectionService/Publish",
     [](CorrectionService* self, std::string_view rpc) {
       return self->Instant(rpc,
                            AnswerToPublish(&self->admit_, &self->report_));
     }},
    {"/counterweight.v1.CorrectionService/MergeSums",
     [](CorrectionService* self, std::string_view rpc) {
       return self->Compute(rpc, MakeMergeWork);
     }},
    {"/counterweight.v1.CorrectionService/Diagnose",
     [](CorrectionService* self, std::string_view rpc) {
       return self->Compute(rpc, [self](Call* call) {
         return std::make_unique<DiagnoseWork>(&self->compute_, &self->report_,
                                               call);
       });
     }},
    {"/counterweight.v1.CorrectionService/ReportStep",
     [](CorrectionService* self, std::string_view rpc) {
       return self->Instant(rpc, AnswerToReportStep(&self->report_));
     }},
    {"/counterweight.v1.CorrectionService/DeclareRun",
     [](CorrectionService* self, std::string_view rpc) {
       return self->Instant(rpc, AnswerToDeclareRun(&self->report_));
     }},
    {"/counterweight.v1.CorrectionService/GroupAdvantages",
     [](CorrectionService* self, std::string_view rpc) {
       return self->Compute(rpc, MakeGroupWork);
     }},
};

CorrectionService::CorrectionService(const AdmitContext& admit,
                                     ComputeContext compute,
                                     const ReportContext& report)
    : admit_(admit),
      compute_(std::move(compute)),
      report_(report),
      id_prefix_(RandomPrefix()) {
  for (const Rpc& rpc : kRpcs) {
    const std::string_view path = rpc.path;
    rpcs_[rpc.path] = rpc.serve(this, path.substr(path.rfind('/') + 1));
  }
  registered_ = std::make_unique<Registered>(rpcs_.at(kCorrectStream));
}

void CorrectionService::Register(grpc::ServerBuilder* builder) {
  builder->RegisterService(registered_.get());
  builder->RegisterCallbackGenericService(this);
}

RawReactor* CorrectionService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  const auto rpc = rpcs_.find(context->method());
  return rpc != rpcs_.end() ? rpc->second(context)
                            : CallbackGenericService::CreateReactor(context);
}

CorrectionService::Begin CorrectionService::Compute(
    std::string_view rpc, ComputeCall::MakeWork make_work) {
  return Unary(rpc,
               [this, rpc, make_work = std::move(make_work)](
                   std::shared_ptr<UnaryCall> call, grpc::ByteBuffer* request) {
                 ComputeCall::Start(&admit_, &report_, rpc, std::move(call),
                                    request, MakeRequestId(), make_work);
               });
}

CorrectionService::Begin CorrectionService::Unary(
    std::string_view rpc, UnaryCall::OnRequest on_request) {
  return [this, rpc, on_request = std::move(on_request)](
             grpc::CallbackServerContext* context) {
    return UnaryCall::Start(&admit_, context, admit_.uses->Use(), on_request,
                            [this, rpc, context](const grpc::Status& status) {
                              Record(rpc, status, 0, *context);
                            });
  };
}

CorrectionService::Begin CorrectionService::Instant(std::string_view rpc,
                                                    InstantAnswer answer) {
  return Unary(rpc, [this, rpc, answer = std::move(answer)](
                        const std::shared_ptr<UnaryCall>& call,
                        grpc::ByteBuffer* request) {
    AnswerInstantly(&admit_, &report_, rpc, call, request, MakeRequestId(),
                    answer);
  });
}

CorrectionService::Begin CorrectionService::AnswerWith(std::string_view rpc,
                                                       Answer answer) {
  return Unary(rpc, [this, rpc, answer = std::move(answer)](
                        const std::shared_ptr<UnaryCall>& call,
                        grpc::ByteBuffer* /*request*/) {
    grpc::ByteBuffer response;
    const grpc::Status status =
        SerializePayload(*answer(*call->context()), &response);
    Record(rpc, status, response.Length(), *call->context());
    call->Finish(status, &response, nullptr);
  });
}

std::unique_ptr<google::protobuf::MessageLite> CorrectionService::ServerInfo(
    const grpc::CallbackServerContext& context) const {
  const kernels::BackendInfo& backend = compute_.backend;
  const std::shared_ptr<const Config> config = compute_.config->Get();
  auto info = std::make_unique<v1::GetServerInfoResponse>();
  v1::GetServerInfoResponse& message = *info;
  message.set_version(Version());
  message.set_revision(Revision());
  EncodeServerInfo(backend, {config->max_tokens, config->max_sequences},
                   info.get());
  v1::Limits* const limits = message.mutable_limits();
  limits->set_max_message_bytes(
      static_cast<uint64_t>(config->max_message_bytes));
  limits->set_max_chunk_bytes(static_cast<uint64_t>(kMaxChunkBytes));
  limits->set_max_bytes_in_flight(
      static_cast<uint64_t>(config->max_bytes_in_flight));
  message.add_features("stream");
  message.add_features("publish");
  message.add_features("partial_sums");
  message.add_features("report_step");
  message.add_features("declare_run");
  message.add_features("group_advantages");
  message.add_features("calm_bounds");
  // A path is for those who could open it.
  if (compute_.regions != nullptr &&
      ParsePeer(context.peer()).transport == "unix") {
    message.add_features("shared_memory");
    if (!backend.devices.empty()) {
      message.add_features("cuda_ipc");
      message.add_features("cuda_parts");
    }
    message.set_shared_memory_socket(compute_.shared_memory_socket);
    limits->set_max_shared_memory_bytes(
        static_cast<uint64_t>(config->max_shared_memory_bytes));
  }
  return info;
}

void CorrectionService::Record(std::string_view rpc, const grpc::Status& status,
                               size_t response_bytes,
                               const grpc::CallbackServerContext& context) {
  report_.metrics->CountRequest(rpc, CodeName(status.error_code()));
  const Peer peer = PeerOf(context, *admit_.access);
  report_.log->Request(
      {.rpc = rpc,
       .request_id = MakeRequestId(),
       .code = status.error_code(),
       .message = status.error_message(),
       .peer = peer.transport,
       .token = peer.token == nullptr ? "" : peer.token->name,
       .response_bytes = static_cast<int64_t>(response_bytes)});
}

std::string CorrectionService::MakeRequestId() {
  return fmt::format("{:016x}-{}", id_prefix_, ++next_id_);
}

}  // namespace counterweight::server
