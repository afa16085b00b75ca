// A request that was read once, for its own batch or for batches of any shape.
#ifndef COUNTERWEIGHT_SERVER_EMBEDDED_PREPARED_CALL_H_
#define COUNTERWEIGHT_SERVER_EMBEDDED_PREPARED_CALL_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "server/embedded/answer.h"
#include "server/embedded/cancellation.h"
#include "server/embedded/compute.h"
#include "server/embedded/counterweight.h"
#include "server/embedded/engine.h"
#include "server/embedded/failure.h"
#include "server/engine/answer_form.h"
#include "server/engine/codec.h"

namespace counterweight::embedded {

// One batch as it is read. Its views point into the caller's memory, and into
// itself or into its PreparedCall; so it is not moved.
struct Reading {
  // The request of the batch; `own`, if each batch is read as one.
  const server::Decoded* decoded = nullptr;
  server::Layout layout;
  // [signature().num_inputs]
  std::array<std::span<const std::byte>, CW_MAX_INPUTS> inputs;
  kernels::Batch batch;
  kernels::PolicyVersions versions;
  // The result is to have partial sums.
  bool has_partial_sums = false;
  v1::CorrectRequest message;
  server::Decoded own;
};

// Implements cw_plan, and cw_correct, which is a plan with one run.
// Thread-safe.
class PreparedCall {
 public:
  // Reads `request` without its tensors; see cw_prepare.
  static Failure Make(std::shared_ptr<Engine> engine, const cw_request& request,
                      std::unique_ptr<PreparedCall>* prepared);
  // Reads `request` with its tensors, which *reading is of then.
  static Failure Make(std::shared_ptr<Engine> engine, const cw_request& request,
                      std::unique_ptr<PreparedCall>* prepared,
                      Reading* reading);
  ~PreparedCall() { delete spare_.load(); }
  PreparedCall(const PreparedCall&) = delete;
  PreparedCall& operator=(const PreparedCall&) = delete;

  const cw_signature& signature() const { return signature_; }
  const v1::CorrectRequest& message() const { return message_; }

  // See cw_run.
  Failure Run(const cw_batch& batch) const;
  // Corrects the batch of `reading`, and fills *result. `batch` has the outputs
  // and their memory; nothing else of it is read.
  Failure Run(const cw_batch& batch, const Reading& reading,
              const Cancellation& cancellation,
              kernels::CorrectResult* result) const;

  // See cw_sum_parts.
  Failure SumParts(const cw_batch& batch, const cw_parts& parts,
                   Answer* answer) const;

  // See cw_describe.
  Failure Describe(const double* numbers, int32_t format, Answer* answer) const;

  // The name of the backend that computes.
  const char* backend() const;

 private:
  explicit PreparedCall(std::shared_ptr<Engine> engine)
      : engine_(std::move(engine)) {}

  Failure Read(const cw_request& request, const server::PayloadSource& source);
  void Sign();

  // Checks the addresses of a batch, and reads it.
  Failure ReadBatch(const cw_batch& batch, Reading* reading) const;
  // Reads a batch that is right in all but numbers without an allocation; false
  // if anything about it is not, or needs the request.
  bool ReadShape(const cw_batch& batch, Reading* reading) const;
  // Reads the same as a request, and finds what is wrong with it.
  Failure ReadAsRequest(const cw_batch& batch, Reading* reading) const;
  // Finds NULL and, where CUDA has to say it, memory of another place.
  Failure CheckInputAddresses(const kernels::Corrector& corrector,
                              const cw_batch& batch) const;
  Failure Place(const kernels::Corrector& corrector, const cw_batch& batch,
                const Reading& reading, kernels::Outputs* outputs) const;

  // Memory of an earlier run, or new memory: no run waits for another one.
  std::unique_ptr<Reading> TakeReading() const;
  void Keep(std::unique_ptr<Reading> reading) const;

  const std::shared_ptr<Engine> engine_;
  v1::CorrectRequest message_;
  server::Decoded decoded_;
  server::AnswerForm form_;
  cw_signature signature_{};
  std::vector<const char*> rules_;
  std::vector<const char*> metrics_;
  mutable std::atomic<Reading*> spare_ = nullptr;
};

}  // namespace counterweight::embedded

#endif  // COUNTERWEIGHT_SERVER_EMBEDDED_PREPARED_CALL_H_
