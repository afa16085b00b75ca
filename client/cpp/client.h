// Counterweight for C++ trainers: a server computes importance weights, keep
// masks, policy losses with gradients and drift metrics of a batch of rollouts.
#ifndef COUNTERWEIGHT_CLIENT_CPP_CLIENT_H_
#define COUNTERWEIGHT_CLIENT_CPP_CLIENT_H_

#include <cstddef>
#include <future>
#include <memory>
#include <string>

#include "client/cpp/location.h"
#include "client/cpp/options.h"
#include "client/cpp/request.h"
#include "client/cpp/response.h"
#include "client/cpp/shared_memory/region.h"
#include "client/cpp/status.h"
#include "counterweight/v1/correction_service.pb.h"

namespace counterweight::client {

// A connection to one server. Thread-safe: any number of concurrent calls, each
// with a Response of its own. No method throws anything but std::bad_alloc.
class Client {
 public:
  // `target` has gRPC's syntax: "localhost:50051", "unix:/run/cw.sock". The
  // first call connects. All calls report a malformed target ("target") or a
  // wrong option ("options.NAME") as kInvalidArgument, and send nothing.
  explicit Client(const std::string& target, const Options& options = {});
  // Closes, and waits for submitted batches. REQUIRES: no other call is in
  // progress.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Corrects one batch and waits for the answer. Reads the request's memory,
  // and writes each output to the request's address or into `response`. Errors
  // beyond those of the server (proto/README.md):
  //   kInvalidArgument    the request contradicts itself; nothing was sent
  //   kDeadlineExceeded   the timeout passed
  //   kCancelled          call_options.stop was requested, or Close called
  //   kUnavailable        no server listens, or the connection broke
  //   kFailedPrecondition kSharedMemory: the server offers none to this target
  //   kInternal           the answer breaks the contract
  // After an error the bytes of the outputs are undefined. Outputs in shared
  // memory may still change after kDeadlineExceeded, kCancelled or
  // kUnavailable: allocate others. Device memory does not: the call waits until
  // the server has finished with it. After 10 s it returns nevertheless, with a
  // message that names the consequence: do not free that memory while the
  // server lives.
  //
  // gRPC sends the inputs from the caller's memory, so a call returns only when
  // gRPC has released it. That is immediate unless the server's process is
  // frozen while the connection is full; a call that timed out then waits until
  // the connection breaks.
  Status Correct(const Request& request, Response* response,
                 const CallOptions& call_options = {});

  // Runs Correct in the background; the future has its status. Blocks while
  // Options::max_in_flight batches are in flight. The memory that `request`
  // refers to, and `*response`, belong to the call until the future is ready. A
  // stop of call_options.stop cancels it; dropping the future does not.
  std::future<Status> Submit(Request request, Response* response,
                             CallOptions call_options = {});

  // Ends calls in progress, and all later ones, with kCancelled. Idempotent;
  // any thread may call it.
  void Close();

  // Returns version, backend, limits and features. Retries as Correct does.
  Status GetServerInfo(v1::GetServerInfoResponse* info,
                       const CallOptions& call_options = {});

  // Returns the methods that Preset names. Retries as Correct does.
  Status ListMethods(v1::ListMethodsResponse* methods,
                     const CallOptions& call_options = {});

  // Adds the sums of a step's parts, CorrectResponse.sums of requests with
  // partial_sums, or what an all-reduce made of them, and with a method
  // finishes them: metrics, rules and loss are those of one request with all
  // rows, bit for bit. Retries as Correct does. kUnimplemented: the server is
  // without the feature "partial_sums".
  Status MergeSums(const v1::MergeSumsRequest& request,
                   v1::MergeSumsResponse* response,
                   const CallOptions& call_options = {});

  // Examines a batch for faults of its data, and names each. The request's
  // tensors carry their data. Retries as Correct does. kUnimplemented: the
  // server is without the feature "diagnose".
  Status Diagnose(const v1::DiagnoseRequest& request,
                  v1::DiagnoseResponse* response,
                  const CallOptions& call_options = {});

  // Reports an optimizer step: what its losses used (receipt.h), beside what it
  // had been given. The request needs an id, and labels with run and step.
  // Retries as Correct does. kUnimplemented: the server is without the feature
  // "report_step".
  Status ReportStep(const v1::ReportStepRequest& request,
                    v1::ReportStepResponse* response,
                    const CallOptions& call_options = {});

  // Declares which method a run uses; answers to its batches then warn of
  // another one. Each of several servers needs it, and one that was started
  // again. The request needs labels with run, and a method. Retries as
  // Correct does. kUnimplemented: the server is without the feature
  // "declare_run".
  Status DeclareRun(const v1::DeclareRunRequest& request,
                    v1::DeclareRunResponse* response,
                    const CallOptions& call_options = {});

  // Makes advantages of the rewards of groups of answers, by baselines that
  // know which rows were rejected. Retries as Correct does. kUnimplemented: the
  // server is without the feature "group_advantages".
  Status GroupAdvantages(const v1::GroupAdvantagesRequest& request,
                         v1::GroupAdvantagesResponse* response,
                         const CallOptions& call_options = {});

  // Allocates at least `bytes` zeroed bytes that the server can map: inputs of
  // Access::kInput and outputs of Access::kOutput may lie anywhere in them
  // (elements aligned) and are not copied by kSharedMemory. Other transports
  // treat them as any memory. kResourceExhausted if the machine has no memory.
  Status Allocate(size_t bytes, Access access, SharedBuffer* buffer);

  // Keeps the allocation around `data`, memory of a CUDA device, open at the
  // server until the last copy of `hold` is gone, and so spares each call
  // opening it. kFailedPrecondition: it cannot be shared, and calls copy it.
  Status Hold(const void* data, DeviceHold* hold);

 private:
  class Implementation;
  const std::unique_ptr<Implementation> implementation_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_CLIENT_H_
