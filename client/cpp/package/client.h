// The installed client, <counterweight/client.h>: importance weights, keep
// masks, policy losses with gradients and drift metrics of a batch of rollouts,
// computed by a Counterweight server.
#ifndef COUNTERWEIGHT_CLIENT_CPP_PACKAGE_CLIENT_H_
#define COUNTERWEIGHT_CLIENT_CPP_PACKAGE_CLIENT_H_

#include <cstddef>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/cpp/location.h"
#include "client/cpp/options.h"
#include "client/cpp/package/types.h"
#include "client/cpp/shared_memory/region.h"
#include "client/cpp/status.h"

namespace counterweight {

using client::Access;
using client::CallOptions;
using client::DeviceHold;
using client::Options;
using client::SharedBuffer;
using client::TlsFiles;
using client::Transport;

// A connection to one server. Thread-safe: any number of concurrent calls, each
// with a Result of its own. Calls, retries and errors are those of
// client/cpp/client.h, which this class wraps.
class Client {
 public:
  // `target`: "localhost:50051", "unix:/run/cw.sock". The first call connects,
  // and reports a wrong option.
  explicit Client(const std::string& target, const Options& options = {});
  // Closes, and waits for submitted batches. REQUIRES: no other call is in
  // progress.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Corrects one batch and waits for the answer.
  Status Correct(const Request& request, Result* result,
                 const CallOptions& call_options = {});
  // Runs Correct in the background; the future has its status. Blocks while
  // Options::max_in_flight batches are in flight. The memory that `request`
  // refers to, and `*result`, belong to the call until the future is ready. A
  // stop of call_options.stop cancels it; dropping the future does not.
  std::future<Status> Submit(Request request, Result* result,
                             CallOptions call_options = {});
  // Ends calls in progress, and all later ones, with kCancelled. Idempotent;
  // any thread may call it.
  void Close();
  // Version, backend, limits and features of the server.
  Status GetServerInfo(ServerInfo* info, const CallOptions& call_options = {});
  // The methods that Method::Preset names, in the table's order.
  Status ListMethods(std::vector<MethodInfo>* methods,
                     const CallOptions& call_options = {});
  // Adds the sums of parts of a step: Result::sums of calls with one method and
  // the same options, or what an all-reduce made of them. Whatever the
  // partition and order of the same rows, the result is the same but for the
  // number of parts. A message takes 32 parts of 8 KiB; more are merged in
  // groups. kInvalidArgument: the parts do not add up. kUnimplemented: the
  // server is without the feature "partial_sums".
  Status MergeSums(std::span<const PartialSums> parts, PartialSums* sums,
                   const CallOptions& call_options = {});
  // Returns the answer that one Correct with all rows of a step would have,
  // without tensors. `sums`: those of the step; `method`: that of its calls.
  // kInvalidArgument: they are not of each other, or the losses do not add up,
  // because each divided by its own counts.
  Status MetricsOf(const PartialSums& sums, const Method& method,
                   StepTotals* totals, const CallOptions& call_options = {});
  // Memory that the server can map, so that its bytes are not copied.
  Status Allocate(size_t bytes, Access access, SharedBuffer* buffer);
  // Keeps the allocation around `data`, memory of a CUDA device, open at the
  // server until the last copy of `hold` is gone, and so spares each call
  // opening it. kFailedPrecondition: it cannot be shared, and calls copy it.
  Status Hold(const void* data, DeviceHold* hold);

 private:
  class Implementation;
  const std::unique_ptr<Implementation> implementation_;
};

}  // namespace counterweight

#endif  // COUNTERWEIGHT_CLIENT_CPP_PACKAGE_CLIENT_H_
