// One CorrectStream call.
#ifndef COUNTERWEIGHT_SERVER_CALL_CORRECT_STREAM_H_
#define COUNTERWEIGHT_SERVER_CALL_CORRECT_STREAM_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "kernels/corrector.h"
#include "server/call/admission_wait.h"
#include "server/call/call_clock.h"
#include "server/call/correction.h"
#include "server/call/executor.h"
#include "server/call/payload.h"
#include "server/call/stream_answer.h"
#include "server/engine/stream_batch.h"

namespace counterweight::server {

// Limits of an upward chunk's data and of the rest of its frame.
inline constexpr int64_t kMaxChunkBytes = int64_t{16} << 20;
inline constexpr int64_t kMaxChunkFraming = 64;

// Header, admission, chunks into staging memory, computing as rows arrive,
// result, chunks out of staging memory, summary.
//
// gRPC's threads copy chunks and start writes; everything else runs on the
// executor, one task of a stream at a time. mutex_ guards what both touch. The
// context may be used under the mutex until the stream has ended (state_ is
// kEnded), as gRPC may free it soon after.
class CorrectStream final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
      public TimedCall,
      public std::enable_shared_from_this<CorrectStream> {
 public:
  // The stream owns itself until gRPC is done with it; it keeps `use` as long.
  static CorrectStream* Start(const AdmitContext* admit,
                              const ComputeContext* compute,
                              const ReportContext* report, std::string_view rpc,
                              grpc::CallbackServerContext* context,
                              std::string request_id,
                              std::shared_ptr<void> use);
  ~CorrectStream() override;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void OnTick(std::chrono::steady_clock::time_point now) override;

 private:
  enum class State : uint8_t {
    kHeader,     // waits for the header
    kEntering,   // decodes it; waits for admission
    kReceiving,  // takes chunks
    kComputing,
    kSending,
    kEnded,
  };
  CorrectStream(const AdmitContext* admit, const ComputeContext* compute,
                const ReportContext* report, std::string_view rpc,
                grpc::CallbackServerContext* context, std::string request_id,
                std::shared_ptr<void> use);

  // The executor's tasks.
  void Enter();
  void Decided(Admission::Verdict verdict,
               std::shared_ptr<Reservation> reservation);
  void Work();

  grpc::Status ReadHeader();
  int64_t NeededBytes() const;
  // Memory and the run.
  grpc::Status Prepare();
  // Computes the rest, if it is the run's turn; else sets *waits.
  grpc::Status FinishComputing(bool* waits);
  // Returns true if Work returns and the run waits for its turn.
  bool MustWait();
  void SubmitWork();
  void EndFromTask(const grpc::Status& status);

  // The reading callback's.
  void TakeChunk();
  grpc::Status ReadChunk();

  // REQUIRES, all of these: mutex_ is held and the stream has not ended.
  void BeginComputing();
  void BeginWork();
  void SendAdmission();
  void SendNext();
  void Write();
  void End(const grpc::Status& status);
  // Ends a stream after its client left.
  void EndCancelled();
  // Frees the place among arrivals, and ends the stream where the peer has too
  // many silent ones.
  void GiveWay();
  // Bytes that the stream owes for `seconds` of its own time.
  double OwedBytes(double seconds) const;

  const std::shared_ptr<void> use_;
  const AdmitContext& admit_;
  const ComputeContext& compute_;
  const ReportContext& report_;
  grpc::CallbackServerContext* const context_;
  std::shared_ptr<CorrectStream> self_;  // until OnDone
  std::atomic<bool> has_ended_ = false;  // state_ is kEnded, without the mutex

  std::mutex mutex_;
  State state_ = State::kHeader;
  bool has_header_ = false;
  bool is_working_ = false;  // Work runs, waits for a thread or for its turn
  bool is_writing_ = false;
  grpc::Status end_;
  int64_t arrived_rows_ = 0;
  int64_t advanced_rows_ = 0;
  bool has_mask_ = false;
  bool advanced_mask_ = false;
  grpc::ByteBuffer outgoing_;
  StreamAnswer answer_;
  std::shared_ptr<void> place_;  // among arrivals, until the header arrived
  std::shared_ptr<void> watch_;  // null once gRPC is done with the context
  int64_t moved_bytes_ = 0;      // up and down
  int64_t reserved_bytes_ = 0;   // 0 before the admission
  Executor::Length length_ = Executor::Length::kShort;  // of Work
  // When a tick first saw the state that it is in.
  std::chrono::steady_clock::time_point state_since_;
  State timed_state_ = State::kHeader;
  // When the window over which stalls are judged began, and the bytes that had
  // moved by then.
  std::chrono::steady_clock::time_point window_since_;
  int64_t window_moved_ = 0;

  // The rest belongs to one thread after the other: to the task that enters, to
  // the reading callback while the stream receives, to Work, to the writing
  // callback.
  Call call_;
  Correction correction_;
  AdmissionWait admission_wait_;
  grpc::ByteBuffer incoming_;
  PayloadPieces frame_;
  int64_t header_bytes_ = 0;
  std::shared_ptr<Reservation> reservation_;
  std::shared_ptr<std::byte> memory_;
  kernels::Batch inputs_;  // in memory_
  StreamBatch batch_;
  std::unique_ptr<kernels::CorrectRun> run_;
  Resumer resumer_;
  kernels::CorrectResult result_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_CORRECT_STREAM_H_
