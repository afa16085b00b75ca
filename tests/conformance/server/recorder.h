// The calls that the scripted server received.
#ifndef COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_RECORDER_H_
#define COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_RECORDER_H_

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "grpcpp/server_context.h"
#include "nlohmann/json.hpp"

namespace counterweight::conformance {

using nlohmann::json;

// The calls of one scripted server, in the order of their arrival. Thread-safe.
class Recorder {
 public:
  // Seconds since the server was opened.
  double Now() const;

  // Adds a call and returns its index; `*attempt` is the number of earlier
  // calls of the same RPC.
  size_t Begin(const std::string& rpc, const grpc::ServerContext& context,
               size_t* attempt);
  // Changes the entry of a call.
  void Note(size_t call, const std::function<void(json*)>& change);
  // All entries so far.
  json calls() const;

 private:
  const std::chrono::steady_clock::time_point begin_ =
      std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  json calls_ = json::array();
  std::map<std::string, size_t> attempts_;
};

// Adds a request's versions, outside of its tensors, to an entry.
void NoteVersions(const v1::CorrectRequest& request, json* entry);

// Adds what a request says of the step that it is a part of.
void NoteStep(const v1::CorrectRequest& request, json* entry);

}  // namespace counterweight::conformance

#endif  // COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_RECORDER_H_
