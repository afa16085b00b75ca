// A client of CorrectStream that may break the protocol.
#ifndef COUNTERWEIGHT_TESTS_FUZZ_STREAM_CLIENT_H_
#define COUNTERWEIGHT_TESTS_FUZZ_STREAM_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/status.h"

namespace counterweight::fuzz {

// A client's actions, independent of the server's answers.
struct StreamPlan {
  // How the sending side ends.
  enum class End : uint8_t { kHalfClose, kStayOpen, kCancel };

  // Messages up, in order.
  std::vector<std::string> messages;
  End end = End::kHalfClose;
  // Cancels after so many messages have arrived; 0: never.
  size_t cancel_at_read = 0;
};

// Result of a plan.
struct StreamAnswer {
  grpc::Status status;
  std::vector<v1::CorrectStreamResponse> messages;
};

// Runs one call to its end. REQUIRES: the server ends a call of a plan that
// stays open by itself.
StreamAnswer RunStream(const std::shared_ptr<grpc::Channel>& channel,
                       const StreamPlan& plan);

}  // namespace counterweight::fuzz

#endif  // COUNTERWEIGHT_TESTS_FUZZ_STREAM_CLIENT_H_
