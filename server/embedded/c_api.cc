// The C ABI: no exception passes it, and each call leaves its error behind.
#include <cxxabi.h>
#include <pthread.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "google/protobuf/message.h"
#include "server/embedded/calls.h"
#include "server/embedded/counterweight.h"
#include "server/embedded/message.h"
#include "server/embedded/prepared_call.h"
#include "server/engine/names.h"
#include "server/engine/receipt.h"

#if GOOGLE_PROTOBUF_VERSION < 4022000
#include "google/protobuf/stubs/logging.h"
#endif

namespace counterweight::embedded {
namespace {

// cw_last_error points into one of these.
struct LastError {
  cw_error error{CW_OK, "", {nullptr, 0}};
  std::string message;
  std::string violations;
};
thread_local LastError last;

int Fail(Failure failure, int32_t format) {
  last.message = std::move(failure.message);
  last.violations.clear();
  if (failure.violations.field_violations_size() > 0) {
    // If they cannot be written, the message still names them.
    static_cast<void>(Write(failure.violations, format, &last.violations));
  }
  last.error = {failure.code,
                last.message.c_str(),
                {last.violations.data(), last.violations.size()}};
  return failure.code;
}

// Defers pthread_cancel to the end of the call: what a call shares with the
// library's threads must outlive their work on it.
class Uncancelled {
 public:
  Uncancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancelled() { pthread_setcancelstate(before_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

template <class Work>
int Guard(int32_t format, const Work& work) {
  const Uncancelled uncancelled;
  try {
    try {
      return Fail(work(), format);
    } catch (const std::bad_alloc&) {
      return Fail({CW_RESOURCE_EXHAUSTED,
                   "there is no memory for this request; send a smaller batch",
                   {}},
                  format);
    } catch (const std::exception& error) {
      return Fail(
          {CW_INTERNAL, server::Concat("internal error: ", error.what()), {}},
          format);
    }
  } catch (const abi::__forced_unwind&) {
    // `place` ends the thread, as Python's interpreter does to its daemon
    // threads at exit. glibc aborts the process if this is not rethrown.
    throw;
  } catch (...) {
    // There is no memory for the error's text.
    last.error = {CW_RESOURCE_EXHAUSTED, "out of memory", {nullptr, 0}};
    return CW_RESOURCE_EXHAUSTED;
  }
}

bool IsFormat(int32_t format) {
  return format == CW_PROTOBUF || format == CW_JSON;
}
Failure WrongFormat() {
  return Misuse("format must be CW_PROTOBUF or CW_JSON");
}

template <class Work>
int Answered(int32_t format, cw_answer** answer, const Work& work) {
  return Guard(format, [&]() -> Failure {
    if (answer == nullptr) return Misuse("answer must not be NULL");
    *answer = nullptr;
    if (!IsFormat(format)) return WrongFormat();
    auto made = std::make_unique<Answer>();
    Failure failure = work(made.get());
    if (!failure.ok()) return failure;
    made->Publish();
    *answer = made.release();
    return failure;
  });
}

Failure Check(const cw_handle* handle, const cw_request& request) {
  if (handle == nullptr) return Misuse("handle must not be NULL");
  if (request.struct_size != sizeof(cw_request)) {
    return Misuse("request.struct_size must be sizeof(cw_request)");
  }
  if (request.message.data == nullptr && request.message.size > 0) {
    return Misuse("request.message.data must not be NULL");
  }
  // Protobuf's int sizes end at 2^31.
  if (request.message.size > size_t{1} << 30) {
    return Misuse("request.message has more than 2^30 bytes");
  }
  if (request.memory != CW_HOST && request.memory != CW_CUDA) {
    return Misuse("request.memory must be CW_HOST or CW_CUDA");
  }
  if (!(request.timeout_seconds >= 0.0)) {
    return Misuse("request.timeout_seconds must be >= 0");
  }
  return {};
}

// Checks the tensors; cw_validate does not read them.
Failure CheckTensors(const cw_request& request) {
  if (request.tensors == nullptr && request.num_tensors > 0) {
    return Misuse("request.tensors must not be NULL");
  }
  for (size_t i = 0; i < request.num_tensors; ++i) {
    if (request.tensors[i].data == nullptr && request.tensors[i].size > 0) {
      return Misuse("request.tensors[].data must not be NULL");
    }
  }
  return {};
}

// A plan may outlive its handle, and then refuses to run.
const std::shared_ptr<Engine>& SharedEngineOf(cw_handle* handle) {
  return *reinterpret_cast<std::shared_ptr<Engine>*>(handle);
}
Engine* EngineOf(cw_handle* handle) { return SharedEngineOf(handle).get(); }

const PreparedCall& PreparedOf(const cw_plan* plan) {
  return *reinterpret_cast<const PreparedCall*>(plan);
}

Failure Check(const cw_parts* parts) {
  if (parts == nullptr) return Misuse("parts must not be NULL");
  if (parts->struct_size != sizeof(cw_parts)) {
    return Misuse("parts.struct_size must be sizeof(cw_parts)");
  }
  return {};
}

Failure Check(const cw_plan* plan, const cw_batch* batch) {
  if (plan == nullptr) return Misuse("plan must not be NULL");
  if (batch == nullptr) return Misuse("batch must not be NULL");
  if (batch->struct_size != sizeof(cw_batch)) {
    return Misuse("batch.struct_size must be sizeof(cw_batch)");
  }
  if (batch->num_sequences < 0) {
    return Misuse("batch.num_sequences must be >= 0");
  }
  if (batch->memory != CW_HOST && batch->memory != CW_CUDA) {
    return Misuse("batch.memory must be CW_HOST or CW_CUDA");
  }
  if (!(batch->timeout_seconds >= 0.0)) {
    return Misuse("batch.timeout_seconds must be >= 0");
  }
  return {};
}

Failure CheckMessage(const cw_handle* handle, const cw_bytes& request) {
  if (handle == nullptr) return Misuse("handle must not be NULL");
  if (request.data == nullptr && request.size > 0) {
    return Misuse("request.data must not be NULL");
  }
  // Protobuf's int sizes end at 2^31.
  if (request.size > size_t{1} << 30) {
    return Misuse("request has more than 2^30 bytes");
  }
  return {};
}

}  // namespace
}  // namespace counterweight::embedded

using counterweight::embedded::Answer;
using counterweight::embedded::Engine;
using counterweight::embedded::EngineOf;
using counterweight::embedded::Failure;
using counterweight::embedded::PreparedCall;

extern "C" {

int32_t cw_abi_version(void) { return CW_ABI_VERSION; }

const char* cw_version(void) { return COUNTERWEIGHT_VERSION; }

int cw_open(const cw_options* options, cw_handle** handle) {
  namespace cw = counterweight::embedded;
  return cw::Guard(CW_PROTOBUF, [&]() -> Failure {
    if (handle == nullptr) return cw::Misuse("handle must not be NULL");
    *handle = nullptr;
    // Text that is not UTF-8 is refused; protobuf also writes each to stderr,
    // which is the program's.
#if GOOGLE_PROTOBUF_VERSION < 4022000
    google::protobuf::SetLogHandler(nullptr);
#endif
    const cw_options defaults{.struct_size = sizeof(cw_options)};
    if (options == nullptr) options = &defaults;
    if (options->struct_size != sizeof(cw_options)) {
      return cw::Misuse("options.struct_size must be sizeof(cw_options)");
    }
    auto engine = std::make_unique<std::shared_ptr<Engine>>();
    Failure failure = Engine::Make(*options, engine.get());
    if (failure.ok()) *handle = reinterpret_cast<cw_handle*>(engine.release());
    return failure;
  });
}

int cw_correct(cw_handle* handle, const cw_request* request,
               cw_answer** answer) {
  namespace cw = counterweight::embedded;
  const int32_t format = request == nullptr ? CW_PROTOBUF : request->format;
  return cw::Answered(format, answer, [&](Answer* made) {
    if (request == nullptr) return cw::Misuse("request must not be NULL");
    Failure failure = cw::Check(handle, *request);
    if (failure.ok()) failure = cw::CheckTensors(*request);
    return failure.ok()
               ? cw::Correct(cw::SharedEngineOf(handle), *request, made)
               : failure;
  });
}

int cw_diagnose(cw_handle* handle, const cw_request* request,
                cw_answer** answer) {
  namespace cw = counterweight::embedded;
  const int32_t format = request == nullptr ? CW_PROTOBUF : request->format;
  return cw::Answered(format, answer, [&](Answer* made) {
    if (request == nullptr) return cw::Misuse("request must not be NULL");
    Failure failure = cw::Check(handle, *request);
    if (failure.ok()) failure = cw::CheckTensors(*request);
    return failure.ok() ? cw::Diagnose(EngineOf(handle), *request, made)
                        : failure;
  });
}

int cw_validate(cw_handle* handle, const cw_request* request,
                cw_answer** answer) {
  namespace cw = counterweight::embedded;
  const int32_t format = request == nullptr ? CW_PROTOBUF : request->format;
  return cw::Answered(format, answer, [&](Answer* made) {
    if (request == nullptr) return cw::Misuse("request must not be NULL");
    Failure failure = cw::Check(handle, *request);
    return failure.ok() ? cw::Validate(EngineOf(handle), *request, made)
                        : failure;
  });
}

int cw_sums(cw_answer* answer, int32_t format, cw_bytes* message) {
  namespace cw = counterweight::embedded;
  return cw::Guard(format, [&]() -> Failure {
    if (message == nullptr) return cw::Misuse("message must not be NULL");
    *message = {nullptr, 0};
    if (answer == nullptr) return cw::Misuse("answer must not be NULL");
    if (!cw::IsFormat(format)) return cw::WrongFormat();
    Answer* const made = static_cast<Answer*>(answer);
    Failure failure = cw::Sums(format, made);
    if (failure.ok()) *message = {made->sums.data(), made->sums.size()};
    return failure;
  });
}

int cw_prepare(cw_handle* handle, const cw_request* request, cw_plan** plan) {
  namespace cw = counterweight::embedded;
  const int32_t format = request == nullptr ? CW_PROTOBUF : request->format;
  return cw::Guard(format, [&]() -> Failure {
    if (plan == nullptr) return cw::Misuse("plan must not be NULL");
    *plan = nullptr;
    if (request == nullptr) return cw::Misuse("request must not be NULL");
    if (!cw::IsFormat(format)) return cw::WrongFormat();
    Failure failure = cw::Check(handle, *request);
    if (!failure.ok()) return failure;
    std::unique_ptr<PreparedCall> made;
    failure = PreparedCall::Make(cw::SharedEngineOf(handle), *request, &made);
    *plan = reinterpret_cast<cw_plan*>(made.release());
    return failure;
  });
}

const cw_signature* cw_signature_of(const cw_plan* plan) {
  if (plan == nullptr) return nullptr;
  return &counterweight::embedded::PreparedOf(plan).signature();
}

int cw_run(const cw_plan* plan, const cw_batch* batch) {
  namespace cw = counterweight::embedded;
  return cw::Guard(CW_PROTOBUF, [&]() -> Failure {
    Failure failure = cw::Check(plan, batch);
    if (failure.ok() && batch->numbers == nullptr) {
      failure = cw::Misuse("batch.numbers must not be NULL");
    }
    return failure.ok() ? cw::PreparedOf(plan).Run(*batch) : failure;
  });
}

int cw_sum_parts(const cw_plan* plan, const cw_batch* batch,
                 const cw_parts* parts, cw_answer** answer) {
  namespace cw = counterweight::embedded;
  return cw::Answered(CW_PROTOBUF, answer, [&](Answer* made) {
    Failure failure = cw::Check(plan, batch);
    if (failure.ok()) failure = cw::Check(parts);
    return failure.ok() ? cw::PreparedOf(plan).SumParts(*batch, *parts, made)
                        : failure;
  });
}

int cw_describe(const cw_plan* plan, const double* numbers, int32_t format,
                cw_answer** answer) {
  namespace cw = counterweight::embedded;
  return cw::Answered(format, answer, [&](Answer* made) {
    if (plan == nullptr) return cw::Misuse("plan must not be NULL");
    if (numbers == nullptr) return cw::Misuse("numbers must not be NULL");
    return cw::PreparedOf(plan).Describe(numbers, format, made);
  });
}

void cw_discard(cw_plan* plan) {
  const counterweight::embedded::Uncancelled uncancelled;
  delete reinterpret_cast<PreparedCall*>(plan);
}

int cw_merge(cw_handle* handle, cw_bytes request, int32_t format,
             cw_answer** answer) {
  namespace cw = counterweight::embedded;
  return cw::Answered(format, answer, [&](Answer* made) {
    Failure failure = cw::CheckMessage(handle, request);
    return failure.ok() ? cw::Merge(request, format, {}, made) : failure;
  });
}

int cw_merge_arrays(cw_handle* handle, cw_bytes request, int32_t format,
                    const cw_partial* parts, size_t num_parts,
                    cw_answer** answer) {
  namespace cw = counterweight::embedded;
  return cw::Answered(format, answer, [&](Answer* made) {
    Failure failure = cw::CheckMessage(handle, request);
    if (!failure.ok()) return failure;
    if (parts == nullptr && num_parts > 0) {
      return cw::Misuse("parts must not be NULL");
    }
    for (size_t i = 0; i < num_parts; ++i) {
      if ((parts[i].sums == nullptr && parts[i].num_sums > 0) ||
          (parts[i].maxima == nullptr && parts[i].num_maxima > 0)) {
        return cw::Misuse("parts[].sums and parts[].maxima must not be NULL");
      }
    }
    return cw::Merge(request, format, {parts, num_parts}, made);
  });
}

int cw_declare_run(cw_handle* handle, cw_bytes request, int32_t format,
                   cw_answer** answer) {
  namespace cw = counterweight::embedded;
  return cw::Answered(format, answer, [&](Answer* made) {
    Failure failure = cw::CheckMessage(handle, request);
    return failure.ok()
               ? cw::DeclareRun(EngineOf(handle), request, format, made)
               : failure;
  });
}

int cw_group_advantages(cw_handle* handle, cw_bytes request, int32_t format,
                        cw_answer** answer) {
  namespace cw = counterweight::embedded;
  return cw::Answered(format, answer, [&](Answer* made) {
    Failure failure = cw::CheckMessage(handle, request);
    return failure.ok() ? cw::GroupAdvantages(request, format, made) : failure;
  });
}

void cw_add_receipt(const float* weights, const uint8_t* mask,
                    const int64_t* lengths, size_t num_rows,
                    cw_receipt* receipt) {
  counterweight::server::Receipt sum{.fingerprint = receipt->fingerprint,
                                     .tokens = receipt->tokens,
                                     .changed_tokens = receipt->changed_tokens,
                                     .dropped_tokens = receipt->dropped_tokens,
                                     .weight_excess = receipt->weight_excess};
  for (size_t row = 0; row < num_rows; ++row) {
    counterweight::server::AddRow(weights, mask, lengths[row], &sum);
    if (weights != nullptr) weights += lengths[row];
    mask += lengths[row];
  }
  *receipt = {.fingerprint = sum.fingerprint,
              .tokens = sum.tokens,
              .changed_tokens = sum.changed_tokens,
              .dropped_tokens = sum.dropped_tokens,
              .weight_excess = sum.weight_excess};
}

int cw_list_methods(cw_handle* handle, int32_t format, cw_answer** answer) {
  namespace cw = counterweight::embedded;
  return cw::Answered(format, answer, [&](Answer* made) {
    if (handle == nullptr) return cw::Misuse("handle must not be NULL");
    return cw::ListMethods(format, made);
  });
}

int cw_server_info(cw_handle* handle, int32_t format, cw_answer** answer) {
  namespace cw = counterweight::embedded;
  return cw::Answered(format, answer, [&](Answer* made) {
    if (handle == nullptr) return cw::Misuse("handle must not be NULL");
    return cw::ServerInfo(EngineOf(handle), format, made);
  });
}

void cw_free(cw_answer* answer) { delete static_cast<Answer*>(answer); }

const cw_error* cw_last_error(void) {
  return &counterweight::embedded::last.error;
}

void cw_close(cw_handle* handle) {
  const counterweight::embedded::Uncancelled uncancelled;
  if (handle == nullptr) return;
  EngineOf(handle)->Close();
  delete reinterpret_cast<std::shared_ptr<Engine>*>(handle);
}
}
