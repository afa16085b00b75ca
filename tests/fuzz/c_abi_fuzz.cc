// Messages of any kind at libcounterweight's border.
//
// Input: a byte of choices (1: JSON, 2: validate alone, 4: no memory by us, 8:
// merge), the bytes of a tensor's element that data repeats, a CorrectRequest
// or MergeSumsRequest.
//
// Checks: every call, cw_diagnose included, returns one of its codes with a
// sentence; a message that cw_validate refuses is not corrected; a prepared
// call answers and refuses as cw_correct does, with the same bytes.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "google/protobuf/util/json_util.h"
#include "server/embedded/counterweight.h"
#include "server/engine/codec_tensors.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/laws.h"

namespace counterweight::fuzz {
namespace {

constexpr size_t kMaxTensorBytes = 16384;
constexpr uint8_t kJson = 1;
constexpr uint8_t kValidate = 2;
constexpr uint8_t kOwnMemory = 4;
constexpr uint8_t kMerge = 8;

cw_handle* Handle() {
  static cw_handle* const handle = [] {
    cw_options options{};
    options.struct_size = sizeof(options);
    options.threads = 1;
    options.max_tokens = 4096;
    options.max_sequences = 256;
    cw_handle* made = nullptr;
    Expect(cw_open(&options, &made) == CW_OK, "a handle can be had");
    return made;
  }();
  return handle;
}

// Memory of exactly the size, for sanitizers, and aligned to any element.
using Memory = std::unique_ptr<uint64_t[]>;

// Outputs at the caller's places.
struct Places {
  std::vector<Memory> given;
  static void* Place(void* context, int32_t /*role*/, int32_t /*dtype*/,
                     size_t size) {
    auto& places = *static_cast<Places*>(context);
    places.given.push_back(std::make_unique<uint64_t[]>(size / 8 + 1));
    return places.given.back().get();
  }
};

// The bytes that the request gives its tensors; none after the first that is
// too large.
std::vector<Memory> MakeTensors(const std::string& message, bool is_json,
                                uint8_t element,
                                std::vector<cw_bytes>* tensors) {
  v1::CorrectRequest request;
  std::vector<Memory> memory;
  if (is_json
          ? !google::protobuf::util::JsonStringToMessage(message, &request).ok()
          : !request.ParseFromString(message)) {
    return memory;
  }
  constexpr int64_t kMost = kMaxTensorBytes;
  const v1::PaddedLayout& layout = request.layout().padded();
  const int64_t positions =
      std::clamp<int64_t>(layout.num_sequences(), 0, kMost) *
      std::clamp<int64_t>(layout.length(), 0, kMost);
  for (const v1::Tensor& tensor : request.tensors()) {
    const int64_t bytes = positions * (tensor.dtype() == v1::D_TYPE_U8 ? 1 : 4);
    if (bytes > kMost) break;
    const auto size = static_cast<size_t>(bytes);
    memory.push_back(std::make_unique<uint64_t[]>(size / 8 + 1));
    std::memset(memory.back().get(),
                tensor.dtype() == v1::D_TYPE_U8 ? 1 : element, size);
    tensors->push_back({memory.back().get(), size});
  }
  return memory;
}

void CheckError(int code) {
  const cw_error* const error = cw_last_error();
  Expect(error != nullptr && error->code == code && error->message != nullptr,
         "an error can be read");
  Expect((code == CW_OK) == (error->message[0] == '\0'),
         "an error says something, and success nothing");
  Expect(code == CW_OK || code == CW_INVALID_ARGUMENT ||
             code == CW_RESOURCE_EXHAUSTED,
         "a message is refused with its own codes", error->message);
}

void CheckAnswer(cw_answer* answer, bool is_sized) {
  Expect(answer != nullptr && answer->message.size > 0, "an answer says much");
  for (size_t i = 0; is_sized && i < answer->num_tensors; ++i) {
    Expect(answer->tensors[i].size == 0 || answer->tensors[i].data != nullptr,
           "an output is somewhere");
  }
  for (const int32_t format : {CW_PROTOBUF, CW_JSON}) {
    cw_bytes sums{};
    CheckError(cw_sums(answer, format, &sums));
  }
}

// A padded batch as a prepared call has it: the code and the outputs' bytes.
void CheckPrepared(const cw_request& request, int expected,
                   const cw_answer* answer) {
  cw_plan* plan = nullptr;
  const int prepared = cw_prepare(Handle(), &request, &plan);
  CheckError(prepared);
  Expect(prepared == CW_OK || expected != CW_OK,
         "what is corrected can be prepared");
  if (prepared != CW_OK) return;
  v1::CorrectRequest message;
  const std::string text(static_cast<const char*>(request.message.data),
                         request.message.size);
  const bool is_read =
      request.format == CW_JSON
          ? google::protobuf::util::JsonStringToMessage(text, &message).ok()
          : message.ParseFromString(text);
  const cw_signature& signature = *cw_signature_of(plan);
  if (is_read && message.layout().has_padded() &&
      request.num_tensors == signature.num_inputs) {
    const v1::PaddedLayout& layout = message.layout().padded();
    const auto rows = static_cast<size_t>(layout.num_sequences());
    const size_t positions = rows * static_cast<size_t>(layout.length());
    cw_batch batch{};
    batch.struct_size = sizeof(batch);
    batch.num_sequences = layout.num_sequences();
    batch.length = layout.length();
    bool is_sized = true;  // a plan is given no sizes
    for (size_t i = 0; i < signature.num_inputs; ++i) {
      const auto dtype = static_cast<v1::DType>(signature.inputs[i].dtype);
      is_sized &= request.tensors[i].size ==
                  positions * static_cast<size_t>(server::ElementSize(dtype));
      batch.inputs[i] = request.tensors[i].data;
    }
    std::vector<Memory> outputs;
    for (size_t i = 0; i < signature.num_outputs; ++i) {
      outputs.push_back(
          std::make_unique<uint64_t[]>(std::max(rows, positions) / 2 + 1));
      batch.outputs[i] = outputs.back().get();
    }
    std::vector<double> numbers(signature.num_numbers);
    batch.numbers = numbers.data();
    const int code = is_sized ? cw_run(plan, &batch) : expected;
    Expect(code == expected, "a prepared call ends as cw_correct does");
    for (size_t i = 0; is_sized && code == CW_OK && i < signature.num_outputs;
         ++i) {
      const cw_bytes& bytes = answer->tensors[i];
      Expect(bytes.size == 0 ||
                 std::memcmp(bytes.data, outputs[i].get(), bytes.size) == 0,
             "a prepared call has cw_correct's bytes");
    }
  }
  cw_discard(plan);
}

// The parts of a step.
void CheckMerge(const std::string& message, int32_t format) {
  cw_answer* answer = nullptr;
  const int code =
      cw_merge(Handle(), {message.data(), message.size()}, format, &answer);
  CheckError(code);
  if (code == CW_OK) CheckAnswer(answer, /*is_sized=*/true);
  cw_free(answer);
}

// The method of a run.
void CheckDeclaration(const std::string& message, int32_t format) {
  cw_answer* answer = nullptr;
  const int code = cw_declare_run(Handle(), {message.data(), message.size()},
                                  format, &answer);
  CheckError(code);
  if (code == CW_OK) CheckAnswer(answer, /*is_sized=*/true);
  cw_free(answer);
}

// The same batch, examined.
void CheckDiagnosis(const cw_request& request) {
  cw_answer* answer = nullptr;
  const int code = cw_diagnose(Handle(), &request, &answer);
  CheckError(code);
  if (code == CW_OK) CheckAnswer(answer, /*is_sized=*/true);
  cw_free(answer);
}

void CheckMessage(Input input) {
  const uint8_t choices = input.TakeByte();
  const uint8_t element = input.TakeByte();
  const bool is_json = (choices & kJson) != 0;
  const std::string message = input.TakeRest();
  if ((choices & kMerge) != 0) {
    CheckDeclaration(message, is_json ? CW_JSON : CW_PROTOBUF);
    return CheckMerge(message, is_json ? CW_JSON : CW_PROTOBUF);
  }
  std::vector<cw_bytes> tensors;
  const std::vector<Memory> memory =
      MakeTensors(message, is_json, element, &tensors);
  Places places;
  cw_request request{};
  request.struct_size = sizeof(request);
  request.format = is_json ? CW_JSON : CW_PROTOBUF;
  request.message = {message.data(), message.size()};
  request.tensors = tensors.data();
  request.num_tensors = tensors.size();
  if ((choices & kOwnMemory) == 0) {
    request.place = Places::Place;
    request.context = &places;
  }
  cw_answer* answer = nullptr;
  const int valid = cw_validate(Handle(), &request, &answer);
  CheckError(valid);
  if (valid == CW_OK) CheckAnswer(answer, /*is_sized=*/false);
  cw_free(answer);
  if ((choices & kValidate) != 0) return;
  const int code = cw_correct(Handle(), &request, &answer);
  CheckError(code);
  Expect(code != CW_OK || valid == CW_OK, "what is invalid is not corrected");
  if (code == CW_OK) CheckAnswer(answer, /*is_sized=*/true);
  CheckPrepared(request, code, answer);
  cw_free(answer);
  CheckDiagnosis(request);
}

}  // namespace
}  // namespace counterweight::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  counterweight::fuzz::SilenceLibraries();
  counterweight::fuzz::CheckMessage(counterweight::fuzz::Input(data, size));
  return 0;
}
