#include "tests/conformance/server/scripted_service.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "google/protobuf/util/json_util.h"
#include "tests/conformance/server/answers.h"
#include "tests/conformance/server/checksum.h"
#include "tests/conformance/server/scripted_stream.h"

namespace counterweight::conformance {
namespace {

// A bound for calls that wait for others; only a fault reaches it.
constexpr double kTogetherSeconds = 30;

// Waits until `done` or for `seconds`. False if the call ended meanwhile.
bool Wait(double seconds, const grpc::ServerContext& context,
          const std::function<bool()>& done) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!done() && std::chrono::steady_clock::now() < end) {
    if (context.IsCancelled()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// Whether the call brings the scenario's token, if there is one.
bool MayCall(const json& script, const grpc::ServerContext& context) {
  if (!script.contains("token")) return true;
  const auto found = context.client_metadata().find("authorization");
  return found != context.client_metadata().end() &&
         found->second == "Bearer " + script["token"].get<std::string>();
}

}  // namespace

json ScriptedService::StepsOf(const std::string& rpc, size_t attempt,
                              const json& otherwise) const {
  const json scripts =
      script_.value("rpcs", json::object()).value(rpc, json::array());
  if (scripts.empty()) return otherwise;
  return scripts[std::min(attempt, scripts.size() - 1)];
}

grpc::Status ScriptedService::Run(const json& steps, size_t call,
                                  grpc::ServerContext* context,
                                  const Steps& run) {
  grpc::Status status;
  if (!MayCall(script_, *context)) {
    status = {grpc::UNAUTHENTICATED, "the token is unknown"};
  }
  try {
    for (const json& step : status.ok() ? steps : json::array()) {
      bool ended = false;
      if (step.contains("wait")) {
        ended = !Wait(step["wait"], *context, [] { return false; });
        if (ended) status = {grpc::CANCELLED, "the client left"};
      } else if (step.contains("together")) {
        const auto all_are_here = [&] {
          return recorder_->calls().size() >= step["together"];
        };
        Wait(kTogetherSeconds, *context, all_are_here);
        ended = !all_are_here();
        if (ended) status = {grpc::ABORTED, "the other calls did not come"};
      } else if (step.contains("error")) {
        status = Error(step["error"], context);
        ended = true;
      } else if (step.contains("forget_memory")) {
        memory_->Forget(step["forget_memory"] == "disconnect");
      } else {
        status = run(step, &ended);
      }
      if (ended) break;
    }
  } catch (const std::exception& error) {
    status = {grpc::UNKNOWN,
              std::string("the scenario is wrong: ") + error.what()};
  }
  recorder_->Note(call, [&](json* entry) {
    (*entry)["ended"] = recorder_->Now();
    (*entry)["cancelled"] = context->IsCancelled();
  });
  return status;
}

grpc::Status ScriptedService::AnswerUnary(const v1::CorrectRequest& request,
                                          const json& patch, size_t call,
                                          grpc::ServerContext* context,
                                          v1::CorrectResponse* response) {
  json tensors = json::array();
  for (const v1::Tensor& tensor : request.tensors()) {
    std::span<const std::byte> data =
        std::as_bytes(std::span(tensor.data().data(), tensor.data().size()));
    if (tensor.has_shared_memory()) {
      if (memory_ != nullptr) data = memory_->Find(tensor.shared_memory());
      if (data.data() == nullptr) {
        const json refusal = {
            {"code", "INVALID_ARGUMENT"},
            {"message", "the region is unknown"},
            {"violations",
             json::array({json::array(
                 {"tensors[" + v1::TensorRole_Name(tensor.role()).substr(12) +
                      "].shared_memory.handle",
                  "is not registered"})})}};
        recorder_->Note(call,
                        [](json* entry) { (*entry)["unknown_region"] = true; });
        return Error(refusal, context);
      }
    }
    tensors.push_back({v1::TensorRole_Name(tensor.role()).substr(12),
                       data.size(), Checksum(data)});
  }
  recorder_->Note(call, [&](json* entry) { (*entry)["tensors"] = tensors; });
  *response = Answer(request, patch);
  for (v1::Tensor& tensor : *response->mutable_tensors()) {
    for (const v1::Tensor& destination : request.destinations()) {
      if (destination.role() != tensor.role() || memory_ == nullptr) continue;
      const std::span<std::byte> to =
          memory_->Find(destination.shared_memory());
      if (to.size() != tensor.data().size()) continue;
      std::copy_n(reinterpret_cast<const std::byte*>(tensor.data().data()),
                  to.size(), to.data());
      tensor.clear_data();
      *tensor.mutable_shared_memory() = destination.shared_memory();
    }
  }
  return grpc::Status::OK;
}

grpc::Status ScriptedService::Correct(grpc::ServerContext* context,
                                      const v1::CorrectRequest* request,
                                      v1::CorrectResponse* response) {
  size_t attempt = 0;
  const size_t call = recorder_->Begin("Correct", *context, &attempt);
  recorder_->Note(call, [&](json* entry) {
    (*entry)["request_id"] = request->request_id();
    (*entry)["message_bytes"] = request->ByteSizeLong();
    (*entry)["destinations"] = request->destinations_size();
    NoteVersions(*request, entry);
    NoteStep(*request, entry);
  });
  const json steps =
      StepsOf("Correct", attempt, json::array({{{"answer", nullptr}}}));
  return Run(steps, call, context, [&](const json& step, bool* ended) {
    *ended = true;
    return AnswerUnary(*request, step.at("answer"), call, context, response);
  });
}

grpc::Status ScriptedService::CorrectStream(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::CorrectStreamResponse,
                             v1::CorrectStreamRequest>* stream) {
  size_t attempt = 0;
  const size_t call = recorder_->Begin("CorrectStream", *context, &attempt);
  const json steps = StepsOf("CorrectStream", attempt,
                             {{{"admit", json::object()}},
                              {{"read", "all"}},
                              {{"result", nullptr}},
                              {{"chunks", json::object()}},
                              {{"summary", json::object()}}});
  ScriptedStream scripted(stream, recorder_, call);
  if (!scripted.ReadHeader()) return grpc::Status::OK;
  grpc::Status status =
      Run(steps, call, context, [&](const json& step, bool* ended) {
        scripted.Run(step, ended);
        return grpc::Status::OK;
      });
  scripted.End();
  return status;
}

grpc::Status ScriptedService::ListMethods(
    grpc::ServerContext* context, const v1::ListMethodsRequest* /*request*/,
    v1::ListMethodsResponse* response) {
  size_t attempt = 0;
  const size_t call = recorder_->Begin("ListMethods", *context, &attempt);
  const json steps =
      StepsOf("ListMethods", attempt, json::array({{{"answer", nullptr}}}));
  return Run(steps, call, context, [&](const json&, bool* ended) {
    *ended = true;
    response->add_methods()->set_name("token_tis");
    return grpc::Status::OK;
  });
}

grpc::Status ScriptedService::GetServerInfo(
    grpc::ServerContext* context, const v1::GetServerInfoRequest* /*request*/,
    v1::GetServerInfoResponse* response) {
  size_t attempt = 0;
  const size_t call = recorder_->Begin("GetServerInfo", *context, &attempt);
  const json steps =
      StepsOf("GetServerInfo", attempt, json::array({{{"answer", nullptr}}}));
  return Run(steps, call, context, [&](const json& step, bool* ended) {
    *ended = true;
    Merge(script_.at("info"), response);
    const json& patch = step.at("answer");
    if (patch.is_object()) {
      Merge(patch.value("merge", json::object()), response);
      if (patch.contains("unknown_fields")) AddUnknownField(response);
      if (patch.contains("unreadable")) {
        AddUnreadableField(v1::GetServerInfoResponse::kLimitsFieldNumber,
                           response);
      }
    }
    return grpc::Status::OK;
  });
}

grpc::Status ScriptedService::MergeSums(grpc::ServerContext* context,
                                        const v1::MergeSumsRequest* request,
                                        v1::MergeSumsResponse* response) {
  size_t attempt = 0;
  const size_t call = recorder_->Begin("MergeSums", *context, &attempt);
  const auto hexadecimal = [](const auto& numbers) {
    json texts = json::array();
    for (const double number : numbers) {
      char text[17];
      std::snprintf(
          text, sizeof(text), "%016llx",
          static_cast<unsigned long long>(std::bit_cast<uint64_t>(number)));
      texts.push_back(text);
    }
    return texts;
  };
  json parts = json::array();
  for (const v1::PartialSums& part : request->parts()) {
    parts.push_back(
        json::array({hexadecimal(part.sums()), hexadecimal(part.maxima())}));
  }
  recorder_->Note(call, [&](json* entry) {
    (*entry)["parts"] = parts;
    (*entry)["method"] = request->has_method()
                             ? json(request->method().preset().name())
                             : json();
  });
  const json steps = StepsOf("MergeSums", attempt, json::array());
  return Run(steps, call, context, [&](const json& step, bool* ended) {
    *ended = true;
    Merge(step.at("answer").at("merge"), response);
    return grpc::Status::OK;
  });
}

}  // namespace counterweight::conformance
