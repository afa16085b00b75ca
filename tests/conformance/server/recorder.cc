#include "tests/conformance/server/recorder.h"

namespace counterweight::conformance {
namespace {

// gRPC reports a call without a deadline as one in the far future.
constexpr double kNoDeadlineSeconds = 1e8;

json Metadata(const grpc::ServerContext& context) {
  json metadata = json::object();
  for (const auto& [key, value] : context.client_metadata()) {
    const std::string name(key.data(), key.size());
    if (name.ends_with("-bin")) continue;
    metadata[name] = std::string(value.data(), value.size());
  }
  return metadata;
}

}  // namespace

double Recorder::Now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                       begin_)
      .count();
}

size_t Recorder::Begin(const std::string& rpc,
                       const grpc::ServerContext& context, size_t* attempt) {
  const double left = std::chrono::duration<double>(
                          context.deadline() - std::chrono::system_clock::now())
                          .count();
  json entry = {{"rpc", rpc},
                {"at", Now()},
                {"metadata", Metadata(context)},
                {"peer", context.peer()},
                {"deadline", nullptr}};
  if (left < kNoDeadlineSeconds) entry["deadline"] = left;
  const std::lock_guard lock(mutex_);
  *attempt = attempts_[rpc]++;
  calls_.push_back(std::move(entry));
  return calls_.size() - 1;
}

void Recorder::Note(size_t call, const std::function<void(json*)>& change) {
  const std::lock_guard lock(mutex_);
  change(&calls_[call]);
}

json Recorder::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

void NoteVersions(const v1::CorrectRequest& request, json* entry) {
  json spans = json::array();
  for (const v1::VersionSpan& span : request.version_spans()) {
    spans.push_back(
        {span.sequence(), span.start(), span.end(), span.policy_version()});
  }
  (*entry)["version_spans"] = spans;
  (*entry)["policy_version"] = request.labels().has_policy_version()
                                   ? json(request.labels().policy_version())
                                   : json();
}

void NoteStep(const v1::CorrectRequest& request, json* entry) {
  (*entry)["partial_sums"] = request.partial_sums();
  (*entry)["omit_loss"] = request.omit_loss();
  (*entry)["step"] =
      request.labels().has_step() ? json(request.labels().step()) : json();
}

}  // namespace counterweight::conformance
