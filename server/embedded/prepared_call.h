// A request that was read once, for batches of any shape.
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
#include "server/embedded/compute.h"
#include "server/embedded/counterweight.h"
#include "server/embedded/engine.h"
#include "server/embedded/failure.h"
#include "server/engine/answer_form.h"
#include "server/engine/codec.h"

namespace counterweight::embedded {

// Implements cw_plan. Thread-safe.
class PreparedCall {
 public:
  // Reads `request`; see cw_prepare.
  static Failure Make(std::shared_ptr<Engine> engine, const cw_request& request,
                      std::unique_ptr<PreparedCall>* prepared);
  ~PreparedCall() { delete spare_.load(); }
  PreparedCall(const PreparedCall&) = delete;
  PreparedCall& operator=(const PreparedCall&) = delete;

  const cw_signature& signature() const { return signature_; }

  // See cw_run.
  Failure Run(const cw_batch& batch) const;

  // See cw_describe.
  Failure Describe(const double* numbers, int32_t format, Answer* answer) const;

 private:
  // One batch as it is read.
  struct Reading {
    server::Layout layout;
    std::array<std::span<const std::byte>, CW_MAX_INPUTS> inputs;
    kernels::Batch batch;
    kernels::PolicyVersions versions;
    // Empty unless the batch was read as a request.
    v1::CorrectRequest message;
    server::Decoded decoded;
  };

  explicit PreparedCall(std::shared_ptr<Engine> engine)
      : engine_(std::move(engine)) {}

  void Sign();

  // Reads a batch that is right in all but numbers without an allocation; false
  // if anything about it is not, or needs the request.
  bool ReadShape(const cw_batch& batch, Reading* reading) const;
  // Reads the same as a request, and finds what is wrong with it.
  Failure ReadAsRequest(const cw_batch& batch, Reading* reading) const;
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
