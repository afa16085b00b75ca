#include "server/grpc_log.h"

#include "grpcpp/version_info.h"

// gpr_set_log_function left gRPC with version 1.66.
#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR < 66

#include <atomic>

#include "grpc/support/log.h"

namespace counterweight::server {
namespace {

std::atomic<RequestLog*> grpc_log{nullptr};

void Log(gpr_log_func_args* arguments) {
  const auto level = arguments->severity == GPR_LOG_SEVERITY_ERROR
                         ? spdlog::level::warn
                         : spdlog::level::debug;
  JsonObject fields;
  fields.Add("what", arguments->message);
  grpc_log.load()->Event(level, "grpc", fields);
}

}  // namespace

void LogGrpcTo(RequestLog* log) {
  grpc_log = log;
  gpr_set_log_function(&Log);
}

}  // namespace counterweight::server

#else

namespace counterweight::server {

void LogGrpcTo(RequestLog* /*log*/) {}

}  // namespace counterweight::server

#endif
