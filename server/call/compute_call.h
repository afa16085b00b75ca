// A unary RPC that computes: everything but the work itself.
#ifndef COUNTERWEIGHT_SERVER_CALL_COMPUTE_CALL_H_
#define COUNTERWEIGHT_SERVER_CALL_COMPUTE_CALL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"
#include "server/call/admission_wait.h"
#include "server/call/call.h"
#include "server/call/executor.h"
#include "server/call/service_context.h"
#include "server/call/unary_call.h"

namespace counterweight::server {

// The work of one request, in stages that run one after the other on the
// executor, perhaps on different threads. A stage that is not OK ends the call
// with its status.
class Work {
 public:
  virtual ~Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // Parses *request, which it frees, and checks it. *reservation has the bytes
  // as received and the bound of the parsed message; what else the request
  // needs is to be reserved here.
  virtual grpc::Status Decode(grpc::ByteBuffer* request,
                              Reservation* reservation) = 0;
  // Takes what Compute shares with other requests, beside threads. False: not
  // now; `wake` is called once, from any thread, when it is to be tried again.
  virtual bool TakeTurn(std::function<void()> wake) = 0;
  virtual grpc::Status Compute() = 0;
  virtual grpc::Status Encode(grpc::ByteBuffer* response) = 0;
  // Publishes a success. After Encode.
  virtual void Publish() = 0;
  // Returns true for work that corrects a batch: its stages are counted.
  virtual bool Corrects() const { return false; }

 protected:
  Work() = default;
};

// Admission, queue, the work's stages, metrics, log, answer. Between two stages
// other peers have their turn, and a client that has left ends the call.
class ComputeCall : public std::enable_shared_from_this<ComputeCall> {
 public:
  // The Call outlives the work.
  using MakeWork = std::function<std::unique_ptr<Work>(Call*)>;

  // Runs a call of `rpc` with a complete message, *request, most of it on the
  // executor. Takes *request.
  static void Start(const AdmitContext* admit, const ReportContext* report,
                    std::string_view rpc, std::shared_ptr<UnaryCall> unary,
                    grpc::ByteBuffer* request, std::string request_id,
                    const MakeWork& make_work);

 private:
  enum class Stage : uint8_t { kDecode, kTurn, kCompute, kEncode, kDone };

  ComputeCall(const AdmitContext* admit, const ReportContext* report,
              std::string_view rpc, std::shared_ptr<UnaryCall> unary,
              grpc::ByteBuffer* request, std::string request_id,
              const MakeWork& make_work);

  void Decided(Admission::Verdict verdict,
               std::shared_ptr<Reservation> reservation);
  // On the executor.
  void Run();
  grpc::Status RunStage();
  // Has the executor run the rest.
  void Resume();
  // Returns the length of what is left, as far as is known.
  Executor::Length Length() const;
  // Returns true if the task returns and the work waits for its turn.
  bool MustWait();
  // Logs, counts and sends.
  void Finish(const grpc::Status& status);

  const AdmitContext& admit_;
  const std::shared_ptr<UnaryCall> unary_;
  grpc::ByteBuffer request_;  // until it is parsed
  Call call_;
  std::unique_ptr<Work> work_;
  AdmissionWait admission_wait_;
  std::shared_ptr<Reservation> reservation_;
  Stage stage_ = Stage::kDecode;
  Executor::Length length_ = Executor::Length::kShort;  // of the task that runs
  bool waits_ = false;                                  // for its turn
  Resumer resumer_;
  grpc::ByteBuffer response_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_COMPUTE_CALL_H_
