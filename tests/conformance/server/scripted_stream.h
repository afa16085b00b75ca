// One CorrectStream, answering by a scenario's script.
#ifndef COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_SCRIPTED_STREAM_H_
#define COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_SCRIPTED_STREAM_H_

#include <cstdint>
#include <future>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "grpcpp/support/sync_stream.h"
#include "nlohmann/json.hpp"
#include "tests/conformance/server/recorder.h"

namespace counterweight::conformance {

using nlohmann::json;

// Runs the steps of streams:
//   admit, read (all, end, a number), chunks, summary
//                    the contract's frames; chunks takes size, most, only,
//                    excess, offset_shift, tensor_shift
//   expect_silence   notes whether a chunk arrives within so many seconds
//   unknown_frame, unreadable_frame
//                    frames that no contract has
class ScriptedStream {
 public:
  using Stream = grpc::ServerReaderWriter<v1::CorrectStreamResponse,
                                          v1::CorrectStreamRequest>;

  ScriptedStream(Stream* stream, Recorder* recorder, size_t call)
      : stream_(stream), recorder_(recorder), call_(call) {}

  // False if the client sent no header.
  bool ReadHeader();
  // Runs a step; sets `*ended` if the client has left.
  void Run(const json& step, bool* ended);
  // Notes the chunks.
  void End();

 private:
  // Reads a message, or what an earlier Peek began to read.
  bool Read(v1::CorrectStreamRequest* message);
  // True if a message or the client's end arrives within the time.
  bool Peek(double seconds);
  // Reads chunks until every tensor is whole, or `most` of them.
  bool ReadChunks(uint64_t most);
  void Take(const v1::Chunk& chunk);
  bool Write(const v1::CorrectStreamResponse& message);
  bool WriteChunks(const json& options);

  Stream* const stream_;
  Recorder* const recorder_;
  const size_t call_;
  v1::CorrectRequest header_;
  v1::CorrectResponse result_;
  std::vector<uint64_t> want_;
  std::vector<uint64_t> have_;
  std::vector<uint32_t> checksums_;
  json chunks_ = json::array();
  std::future<bool> pending_;
  v1::CorrectStreamRequest pending_message_;
};

}  // namespace counterweight::conformance

#endif  // COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_SCRIPTED_STREAM_H_
