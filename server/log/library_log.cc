#include "server/log/library_log.h"

#include <atomic>
#include <string>
#include <string_view>

#include "google/protobuf/stubs/common.h"
#include "grpcpp/version_info.h"
#include "nlohmann/json.hpp"

// gRPC has logged through abseil since version 1.66, protobuf since version 22;
// before, each had a log of its own and abseil had none.
#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR < 66
#define COUNTERWEIGHT_GRPC_HAS_ITS_OWN_LOG
#include "grpc/support/log.h"
#endif
#if GOOGLE_PROTOBUF_VERSION < 4022000
#define COUNTERWEIGHT_PROTOBUF_HAS_ITS_OWN_LOG
#include "google/protobuf/stubs/logging.h"
#endif
#if __has_include("absl/log/log_sink_registry.h")
#define COUNTERWEIGHT_ABSEIL_HAS_A_LOG
#include "absl/base/log_severity.h"
#include "absl/log/globals.h"
#include "absl/log/initialize.h"
#include "absl/log/log_entry.h"
#include "absl/log/log_sink.h"
#include "absl/log/log_sink_registry.h"
#endif

namespace counterweight::server {
namespace {

std::atomic<RequestLog*> library_log{nullptr};

void Log(spdlog::level::level_enum level, std::string_view event,
         std::string_view message) {
  library_log.load()->Event(level, event, {{"what", message}});
}

void LogGrpc(bool is_error, std::string_view message) {
  Log(is_error ? spdlog::level::warn : spdlog::level::debug, "grpc", message);
}

// Mostly about what clients send: their log lines have it in our words.
void LogProtobuf(std::string_view message) {
  Log(spdlog::level::debug, "protobuf", message);
}

#ifdef COUNTERWEIGHT_ABSEIL_HAS_A_LOG
class LibrarySink : public absl::LogSink {
 public:
  void Send(const absl::LogEntry& entry) override {
    // Copies: abseil may have a string_view of its own.
    const std::string file(entry.source_filename());
    const std::string message(entry.text_message());
    if (entry.log_severity() == absl::LogSeverity::kFatal) {
      // Abseil sends it twice, the second time with the stack, and aborts.
      if (!entry.stacktrace().empty()) return;
      Log(spdlog::level::err, "abort", message);
      // No destructor runs that would wait for the log's thread.
      library_log.load()->Flush();
    } else if (file.find("google/protobuf/") != file.npos) {
      LogProtobuf(message);
    } else {
      LogGrpc(entry.log_severity() == absl::LogSeverity::kError, message);
    }
  }
};

void LogAbseil() {
  // InitializeLog aborts when it is called again.
  static const bool once [[maybe_unused]] = [] {
    absl::AddLogSink(new LibrarySink);
    absl::SetStderrThreshold(absl::LogSeverityAtLeast::kInfinity);
    // The threshold has no effect before this call.
    absl::InitializeLog();
    return true;
  }();
}
#endif

}  // namespace

void LogLibrariesTo(RequestLog* log) {
  library_log = log;
#ifdef COUNTERWEIGHT_GRPC_HAS_ITS_OWN_LOG
  gpr_set_log_function([](gpr_log_func_args* arguments) {
    LogGrpc(arguments->severity == GPR_LOG_SEVERITY_ERROR, arguments->message);
  });
#endif
#ifdef COUNTERWEIGHT_PROTOBUF_HAS_ITS_OWN_LOG
  google::protobuf::SetLogHandler(
      [](google::protobuf::LogLevel /*level*/, const char* /*file*/,
         int /*line*/, const std::string& message) { LogProtobuf(message); });
#endif
#ifdef COUNTERWEIGHT_ABSEIL_HAS_A_LOG
  LogAbseil();
#endif
}

}  // namespace counterweight::server
