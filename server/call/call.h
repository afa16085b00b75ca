// The part that the calls of all RPCs share.
#ifndef COUNTERWEIGHT_SERVER_CALL_CALL_H_
#define COUNTERWEIGHT_SERVER_CALL_CALL_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"
#include "server/access/token_table.h"
#include "server/call/service_context.h"
#include "server/engine/violation.h"
#include "server/log/request_log.h"

namespace counterweight::server {

// A client's name for itself, the same in all of its calls.
inline constexpr char kClientKey[] = "counterweight-client";

// The status for a client that is refused for lack of room.
grpc::Status ServerIsFull();

// One call: who makes it, how long its stages took, and the statuses with which
// it can fail. Used by one thread at a time; but any may call StillWanted, and
// the refusals beside InvalidArgument.
class Call {
 public:
  // `rpc` is the RPC's name. `context` must outlive the calls of StillWanted.
  Call(const AdmitContext* admit, const ReportContext* report,
       std::string_view rpc, grpc::CallbackServerContext* context,
       std::string request_id);

  RequestRecord& record() { return record_; }
  const RequestRecord& record() const { return record_; }
  // The owner of the share and of the turn: the peer, and the client's own name
  // in the metadata kClientKey, since a machine's trainers are one peer.
  const Client& queue_client() const { return queue_client_; }
  // True if the caller is on this machine.
  bool is_local() const { return record_.peer != "tcp"; }

  // OK if the client's token may write this run's series; PERMISSION_DENIED
  // otherwise.
  grpc::Status MayWrite(const std::string& run) const;
  // OK while the client waits for the answer.
  grpc::Status StillWanted() const;
  grpc::Status InvalidArgument(const Violations& violations);
  // The verdict as a status; OK if it is kAdmitted.
  grpc::Status Refuse(Admission::Verdict verdict);
  grpc::Status NoMemory();
  // Logs `what` as the event `event`; the client's error names the log.
  grpc::Status InternalError(std::string_view event, std::string_view what);
  // Returns the status of `work`, or the status for its exception.
  grpc::Status Guard(const std::function<grpc::Status()>& work);

  // Ends a stage, "decode": adds the time since the end of the last one, or
  // since construction, to `seconds` of record().
  void EndStage(std::string_view stage, double RequestRecord::*seconds);
  // Counts a corrected batch: the time of each stage and of all, and its bytes.
  void CountStages();
  // Counts and logs the end.
  void Record(const grpc::Status& status);

 private:
  using Clock = std::chrono::steady_clock;

  const AdmitContext& admit_;
  const ReportContext& report_;
  grpc::CallbackServerContext* const context_;
  Clock::time_point stage_start_ = Clock::now();
  Client queue_client_;  // its peer is what drift is counted by
  std::shared_ptr<const TokenTable::Token> token_;
  RequestRecord record_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_CALL_H_
