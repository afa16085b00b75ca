// The C++ client's driver: runs calls that it reads as JSON from stdin, and
// reports each run as a line on stdout; README.md has the protocol.
#include <chrono>
#include <exception>
#include <iostream>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "nlohmann/json.hpp"
#include "tests/conformance/drivers/batch.h"

namespace counterweight::conformance {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

milliseconds Milliseconds(const json& seconds) {
  return milliseconds(static_cast<int64_t>(seconds.get<double>() * 1000));
}

client::Options ReadOptions(const json& about) {
  client::Options options;
  if (about.contains("timeout"))
    options.timeout = Milliseconds(about["timeout"]);
  options.max_attempts = about.value("attempts", options.max_attempts);
  options.chunk_bytes = about.value("chunk_bytes", options.chunk_bytes);
  options.token = about.value("token", "");
  options.token_file = about.value("token_file", "");
  options.allow_insecure_token = about.value("allow_insecure_token", false);
  if (about.contains("tls")) {
    const json& tls = about["tls"];
    options.tls = client::TlsFiles{
        .root_certificates = tls.value("root_certificates", ""),
        .certificate = tls.value("certificate", ""),
        .key = tls.value("key", ""),
        .server_name = tls.value("server_name", "")};
  }
  client::ParseTransport(about.value("transport", "auto"), &options.transport);
  return options;
}

json Correct(const json& call, const client::CallOptions& options,
             client::Client* client) {
  Batch batch;
  client::Status status = ReadBatch(call, &batch);
  client::Response response;
  if (status.ok()) status = client->Correct(batch.request, &response, options);
  return status.ok() ? Report(response) : Report(status);
}

// Corrects the parts of a step, adds up their sums and finishes them.
json Step(const json& call, const client::CallOptions& options,
          client::Client* client) {
  v1::MergeSumsRequest merge;
  v1::MergeSumsRequest last;
  client::Status status;
  for (const json& about : call["parts"]) {
    json part = call;
    part["batch"] = about;
    Batch batch;
    status = ReadBatch(part, &batch);
    client::Response response;
    if (status.ok()) {
      status = client->Correct(batch.request, &response, options);
    }
    if (!status.ok()) return Report(status);
    *merge.add_parts() = response.message.sums();
    *last.mutable_method() = batch.request.header.method();
  }
  v1::MergeSumsResponse totals;
  status = client->MergeSums(merge, &totals, options);
  if (!status.ok()) return Report(status);
  *last.add_parts() = totals.sums();
  status = client->MergeSums(last, &totals, options);
  return status.ok() ? Report(totals) : Report(status);
}

json Call(const json& call, client::Client* client) {
  if (call.contains("after")) {
    std::this_thread::sleep_for(Milliseconds(call["after"]));
  }
  client::CallOptions options;
  if (call.contains("timeout")) options.timeout = Milliseconds(call["timeout"]);
  std::stop_source stop;
  options.stop = stop.get_token();
  // Before the threads, which a busy machine runs first.
  const auto begin = steady_clock::now();
  std::jthread canceller;
  if (call.contains("cancel_after")) {
    canceller =
        std::jthread([&stop, pause = Milliseconds(call["cancel_after"])] {
          std::this_thread::sleep_for(pause);
          stop.request_stop();
        });
  }
  std::jthread closer;
  if (call.contains("close_after")) {
    closer = std::jthread([client, pause = Milliseconds(call["close_after"])] {
      std::this_thread::sleep_for(pause);
      client->Close();
    });
  }
  const std::string what = call.value("do", "correct");
  json report;
  if (what == "correct") {
    report = Correct(call, options, client);
  } else if (what == "step") {
    report = Step(call, options, client);
  } else if (what == "server_info") {
    v1::GetServerInfoResponse info;
    const client::Status status = client->GetServerInfo(&info, options);
    report = status.ok() ? json{{"ok", true}, {"version", info.version()}}
                         : Report(status);
  } else {
    v1::ListMethodsResponse methods;
    const client::Status status = client->ListMethods(&methods, options);
    report = status.ok()
                 ? json{{"ok", true}, {"methods", methods.methods_size()}}
                 : Report(status);
  }
  report["seconds"] = duration<double>(steady_clock::now() - begin).count();
  return report;
}

json Run(const json& command) {
  std::mutex mutex;
  std::vector<std::string> warnings;
  client::Options options =
      ReadOptions(command.value("client", json::object()));
  options.on_warning = [&](std::string_view warning) {
    const std::lock_guard lock(mutex);
    warnings.emplace_back(warning);
  };
  client::Client client(command["target"].get<std::string>(), options);
  const json& calls = command["calls"];
  std::vector<json> reports(calls.size());
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!command.value("concurrent", false)) {
      reports[i] = Call(calls[i], &client);
      continue;
    }
    threads.emplace_back([&, i] { reports[i] = Call(calls[i], &client); });
  }
  threads.clear();
  return {{"run", command["run"]}, {"calls", reports}, {"warnings", warnings}};
}

}  // namespace
}  // namespace counterweight::conformance

int main() {
  std::mutex mutex;
  std::vector<std::jthread> runs;
  std::string line;
  while (std::getline(std::cin, line)) {
    runs.emplace_back([&mutex, line] {
      nlohmann::json report;
      const nlohmann::json command = nlohmann::json::parse(line);
      try {
        report = counterweight::conformance::Run(command);
      } catch (const std::exception& error) {
        report = {{"run", command["run"]}, {"failed", error.what()}};
      }
      const std::lock_guard lock(mutex);
      std::cout << report.dump() << std::endl;
    });
  }
  return 0;
}
