// One request's work, whichever RPC brought it.
#ifndef COUNTERWEIGHT_SERVER_CALL_CORRECTION_H_
#define COUNTERWEIGHT_SERVER_CALL_CORRECTION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "google/protobuf/io/zero_copy_stream.h"
#include "grpcpp/support/status.h"
#include "server/call/call.h"
#include "server/engine/codec.h"
#include "server/engine/codec_calm_bound.h"
#include "server/engine/examination.h"

namespace counterweight::server {

// From serialized bytes to a request. `has_data`: tensors bring their data.
// Stops before protobuf builds more objects than a request can use.
grpc::Status ParseScanned(int64_t max_sequences, bool has_data,
                          google::protobuf::io::ZeroCopyInputStream* input,
                          Call* call, v1::CorrectRequest* request);

// Decodes, judges, encodes, publishes. Used by one thread at a time.
class Correction {
 public:
  // All must outlive this.
  Correction(const ComputeContext* compute, const ReportContext* report,
             Call* call)
      : compute_(*compute), report_(*report), call_(*call) {}

  // REQUIRES: Decode was OK.
  const Decoded& decoded() const { return *decoded_; }
  v1::CorrectResponse& response() { return response_; }

  // ParseScanned() with the server's limits.
  grpc::Status Parse(google::protobuf::io::ZeroCopyInputStream* input,
                     bool has_data);
  // From the request to decoded(). Calls `wanted` between steps, and stops with
  // its status if that is not OK.
  grpc::Status Decode(PayloadSource source,
                      const std::function<grpc::Status()>& wanted);
  // Memory of the request and of decoded(), in bytes: what they take beside the
  // outputs and the scratch.
  int64_t ObjectBytes() const;
  // Converts the kernels' status for the client. A run is stopped only when its
  // result is no longer wanted.
  grpc::Status Judge(const kernels::CorrectResult& result);
  // Fills all of response() but tensors and their data.
  grpc::Status Encode(const kernels::CorrectResult& result);
  // True if the batch is to be examined for faults of its data.
  bool WantsExamination() const;
  // Examines `batch`: decoded(), or that with a copy of its mask.
  void Examine(const kernels::Batch& batch);
  // True if the batch's weights are to be counted for the run's calm level.
  bool WantsCalmWeights() const;
  // Counts them in `batch`, as Examine has it.
  void CountCalmWeights(const kernels::Batch& batch);
  // Metrics and drift of a success. After Encode.
  void Publish(const kernels::CorrectResult& result);

 private:
  // Replaces the bound that the run's calm steps decide by its number.
  grpc::Status ResolveBound();

  const ComputeContext& compute_;
  const ReportContext& report_;
  Call& call_;
  v1::CorrectRequest request_;
  std::optional<const Decoded> decoded_;
  v1::CorrectResponse response_;
  std::optional<Examined> examined_;
  // The bound that the request left to the run's calm steps, and its level; the
  // request's method as it was sent.
  std::optional<CalmBound> calm_bound_;
  CalmLevel calm_level_;
  v1::Method asked_method_;
  std::optional<CalmBatch> calm_batch_;
  // Whether the method is another one than the run declares; none if it
  // declares none.
  std::optional<bool> is_other_method_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_CORRECTION_H_
