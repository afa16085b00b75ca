#include "client/cpp/bench/run.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/bench/batch.h"
#include "client/cpp/bench/echo_server.h"
#include "client/cpp/bench/load.h"
#include "client/cpp/bench/memory_copy.h"
#include "client/cpp/bench/report.h"
#include "client/cpp/client.h"

namespace counterweight::bench {
namespace {

using client::Status;
using std::chrono::duration;
using std::chrono::milliseconds;

client::Options ClientOptions(const Settings& settings) {
  client::Options options;
  options.transport = settings.transport;
  options.chunk_bytes = settings.chunk_bytes;
  options.timeout =
      std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(
                                    duration<double>(settings.timeout_s)));
  // The tool reports refusals instead of retrying.
  options.max_attempts = 1;
  options.tls = settings.tls;
  options.token_file = settings.token_file;
  if (settings.echo) options.service = kEchoService;
  return options;
}

// True if the method computes a loss without a policy_loss of the request.
bool HasLoss(const v1::Method& method, client::Client* client) {
  if (!method.has_preset()) return true;
  v1::ListMethodsResponse methods;
  if (!client->ListMethods(&methods).ok()) return false;
  return std::any_of(methods.methods().begin(), methods.methods().end(),
                     [&](const v1::MethodInfo& info) {
                       return info.name() == method.preset().name() &&
                              info.config().has_policy_loss();
                     });
}

void AddLoss(v1::Method* method) {
  v1::PolicyLoss* const loss = method->mutable_preset()->mutable_policy_loss();
  loss->set_surrogate(v1::SURROGATE_PPO_CLIP);
  loss->set_aggregation(v1::LOSS_AGGREGATION_TOKEN_MEAN);
  loss->set_denominator(v1::LOSS_DENOMINATOR_ORIGINAL);
  loss->set_clip_low(0.2);
  loss->set_clip_high(0.2);
  // The weight and PPO's own ratio may correct the same drift; this is a
  // benchmark.
  loss->set_allow_double_correction(true);
}

// Compares the first answer with a unary call's.
Status Verify(const client::Request& request, const client::Response& first,
              client::Client* client) {
  client::Request plain = request;
  for (client::Output& output : plain.outputs) output = {.role = output.role};
  client::Response unary;
  Status status =
      client->Correct(plain, &unary, {.transport = client::Transport::kUnary});
  if (!status.ok()) {
    status.message = "the unary call of --verify: " + status.message;
    return status;
  }
  for (const client::OutputTensor& have : first.outputs) {
    const client::OutputTensor* const want = unary.Find(have.role);
    if (want != nullptr && want->bytes == have.bytes &&
        std::memcmp(want->data, have.data, have.bytes) == 0) {
      continue;
    }
    return {.code = client::StatusCode::kDataLoss,
            .message = "--verify: " + v1::TensorRole_Name(have.role) +
                       " differs from a unary call's"};
  }
  return {};
}

int Fail(const Status& status) {
  std::fprintf(stderr, "counterweight-bench: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace

int Run(Settings settings) {
  client::Client client(settings.target, ClientOptions(settings));
  const bool copies =
      settings.echo && settings.transport == client::Transport::kSharedMemory;
  if (settings.loss && !HasLoss(settings.method, &client)) {
    AddLoss(&settings.method);
  }
  Batch batch;
  Status status = batch.Make(settings, &client);
  const auto workers = static_cast<size_t>(settings.concurrency);
  std::vector<Outputs> outputs(workers);
  std::vector<client::Request> requests(workers, batch.request());
  for (size_t i = 0; i < workers && status.ok(); ++i) {
    status = outputs[i].Make(settings, batch, &client);
    requests[i].outputs = outputs[i].outputs();
  }
  MemoryCopy copy;
  if (status.ok() && copies) status = copy.Make(requests);
  if (!status.ok()) return Fail(status);
  const Call call = [&](const client::Request& request,
                        client::Response* response) {
    return copies ? copy.Run(request, response)
                  : client.Correct(request, response);
  };
  client::Response first;
  status = call(requests[0], &first);
  if (status.ok() && settings.verify) {
    status = Verify(requests[0], first, &client);
  }
  if (!status.ok()) return Fail(status);
  const Measurement measurement = Load(settings, requests, call);
  const std::string report = (settings.json ? JsonReport : TextReport)(
      settings, batch.num_positions(), measurement);
  std::fputs(report.c_str(), stdout);
  if (measurement.errors.empty()) return 0;
  std::fprintf(stderr, "counterweight-bench: %s\n",
               measurement.first_error.c_str());
  return 1;
}

}  // namespace counterweight::bench
