#include "server/protobuf_log.h"

#include "google/protobuf/stubs/common.h"

// SetLogHandler left protobuf with version 22.
#if GOOGLE_PROTOBUF_VERSION < 4022000

#include <atomic>
#include <string>

#include "google/protobuf/stubs/logging.h"

namespace counterweight::server {
namespace {

std::atomic<RequestLog*> protobuf_log{nullptr};

// Mostly about what clients send: their log lines say that in our words.
void Log(google::protobuf::LogLevel /*level*/, const char* /*file*/,
         int /*line*/, const std::string& message) {
  JsonObject fields;
  fields.Add("what", message);
  protobuf_log.load()->Event(spdlog::level::debug, "protobuf", fields);
}

}  // namespace

void LogProtobufTo(RequestLog* log) {
  protobuf_log = log;
  google::protobuf::SetLogHandler(&Log);
}

}  // namespace counterweight::server

#else

namespace counterweight::server {

void LogProtobufTo(RequestLog* /*log*/) {}

}  // namespace counterweight::server

#endif
