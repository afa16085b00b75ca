// Counterweight for C++ trainers: importance weights, keep masks, policy losses
// with gradients and drift metrics of a batch of rollouts, computed by a
// server.
#ifndef COUNTERWEIGHT_CLIENT_CPP_CLIENT_H_
#define COUNTERWEIGHT_CLIENT_CPP_CLIENT_H_

#include <cstddef>
#include <memory>
#include <string>

#include "client/cpp/options.h"
#include "client/cpp/request.h"
#include "client/cpp/response.h"
#include "client/cpp/shared_memory/region.h"
#include "client/cpp/status.h"
#include "counterweight/v1/correction_service.pb.h"

namespace counterweight::client {

// A connection to one server. Thread-safe: any number of calls at a time, each
// with a Response of its own. Nothing here throws but std::bad_alloc.
class Client {
 public:
  // `target` as gRPC names it: "localhost:50051", "unix:/run/cw.sock". Connects
  // with the first call. A wrong option is the first call's error.
  explicit Client(const std::string& target, const Options& options = {});
  // REQUIRES: no call is in progress.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Corrects one batch and waits for the answer. Reads the request's memory,
  // writes the outputs where the request says, or into `response`. Besides what
  // the server answers (proto/README.md):
  //   kInvalidArgument    the request contradicts itself; nothing was sent
  //   kDeadlineExceeded   the timeout passed
  //   kCancelled          call_options.stop was requested
  //   kUnavailable        nobody listens, or the connection broke
  //   kFailedPrecondition kSharedMemory: the server offers none to this target
  //   kInternal           the answer breaks the contract
  // After an error the outputs' bytes are undefined, and, for outputs in shared
  // memory after kDeadlineExceeded, kCancelled or kUnavailable, may still
  // change: allocate others.
  //
  // Inputs are sent from where they lie, so a call returns only when gRPC has
  // let go of them. That is at once unless the server's process is frozen while
  // the connection is full; then a call that timed out waits until it breaks.
  Status Correct(const Request& request, Response* response,
                 const CallOptions& call_options = {});

  // Version, backend, limits, features. Tried again as Correct is.
  Status GetServerInfo(v1::GetServerInfoResponse* info,
                       const CallOptions& call_options = {});

  // The methods that Preset names.
  Status ListMethods(v1::ListMethodsResponse* methods,
                     const CallOptions& call_options = {});

  // Zeroed memory of at least `bytes` bytes that shared memory need not copy:
  // inputs of Access::kInput and outputs of Access::kOutput may lie anywhere in
  // it (elements aligned). With other transports it is memory like any other.
  // kResourceExhausted if the machine has none.
  Status Allocate(size_t bytes, Access access, SharedBuffer* buffer);

 private:
  class Implementation;
  const std::unique_ptr<Implementation> implementation_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_CLIENT_H_
