#include "client/cpp/transport/attempt.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace counterweight::client {
namespace {

using std::chrono::milliseconds;

// Longer than any deadline. Numbers up to this one can be doubled and converted
// to nanoseconds.
constexpr int64_t kLongestDelaySeconds = int64_t{10} * 365 * 24 * 3600;

// How long an attempt that is over waits for a write to end: those of slow
// links end, those to a frozen process do not.
constexpr std::chrono::seconds kWritePatience{2};

// The server's delay, https://github.com/grpc/proposal A6: milliseconds; a
// negative number forbids retries.
std::optional<int64_t> Pushback(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find("grpc-retry-pushback-ms");
  if (found == trailers.end()) return std::nullopt;
  const grpc::string_ref text = found->second;
  int64_t value = -1;
  const auto parsed =
      std::from_chars(text.data(), text.data() + text.size(), value);
  // A6: an unreadable value forbids retries.
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) {
    return -1;
  }
  return std::min(value, kLongestDelaySeconds * 1000);
}

void ReadDetails(const std::string& bytes, Status* status) {
  google::rpc::Status details;
  if (!details.ParseFromString(bytes)) return;
  for (const google::protobuf::Any& any : details.details()) {
    google::rpc::BadRequest bad_request;
    google::rpc::RetryInfo retry;
    if (any.UnpackTo(&bad_request)) {
      for (const auto& violation : bad_request.field_violations()) {
        status->violations.push_back(
            {violation.field(), violation.description()});
      }
    } else if (any.UnpackTo(&retry)) {
      const auto& delay = retry.retry_delay();
      // The message may hold any number.
      const int64_t seconds =
          std::clamp<int64_t>(delay.seconds(), 0, kLongestDelaySeconds - 1);
      const int64_t nanos = std::clamp(delay.nanos(), 0, 999999999);
      status->retry_after = milliseconds(seconds * 1000 + nanos / 1000000);
    }
  }
}

// gRPC measures deadlines by the wall clock.
std::chrono::system_clock::time_point WallClock(
    std::chrono::steady_clock::time_point deadline) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(
             deadline - std::chrono::steady_clock::now());
}

}  // namespace

Attempt::Attempt(std::chrono::steady_clock::time_point deadline,
                 const std::stop_token& stop,
                 std::shared_ptr<Connections> connections)
    : deadline_(deadline),
      connections_(std::move(connections)),
      on_stop_(stop, [this] {
        context_.TryCancel();
        CutStuckAfter(std::chrono::steady_clock::now(), &after_stop_);
      }) {
  context_.set_deadline(WallClock(deadline));
  CutStuckAfter(deadline, &after_deadline_);
}

void Attempt::CutStuckAfter(std::chrono::steady_clock::time_point end,
                            grpc::Alarm* alarm) {
  alarm->Set(WallClock(end + kWritePatience),
             [connections = connections_](bool expired) {
               if (expired) connections->CutStuck();
             });
}

Outcome Attempt::End(const grpc::Status& status) const {
  Outcome outcome;
  outcome.status.code = static_cast<StatusCode>(status.error_code());
  if (status.ok()) return outcome;
  outcome.status.message = status.error_message();
  ReadDetails(status.error_details(), &outcome.status);
  const std::optional<int64_t> pushback = Pushback(context_);
  outcome.retry_forbidden = pushback && *pushback < 0;
  if (outcome.retry_forbidden) outcome.status.retry_after.reset();
  if (pushback && *pushback >= 0) {
    outcome.status.retry_after =
        std::max(outcome.status.retry_after.value_or(milliseconds(0)),
                 milliseconds(*pushback));
  }
  return outcome;
}

}  // namespace counterweight::client
