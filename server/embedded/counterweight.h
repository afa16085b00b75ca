/* libcounterweight: corrections in the caller's process, without a server.
 *
 * The request is a counterweight.v1.CorrectRequest whose tensors carry no data,
 * as protobuf's bytes or in protobuf's JSON form; the bytes of the tensors stay
 * where they are, and outputs are written where the caller says. The answer is
 * a counterweight.v1.CorrectResponse in the same form, equal in every bit to a
 * server's of the same numerics_version, and errors have the same codes,
 * messages and violations.
 *
 * Functions return a gRPC status code; cw_last_error() has the rest. They never
 * throw, print, or end the process.
 *
 * Threads: a handle may be used by any number of threads at once. No thread is
 * started before the first correction; those of the library block all signals.
 * A thread that is cancelled (pthread_cancel) ends when its call returns.
 *
 * fork(): a handle that was opened before is usable in the child, where the
 * first correction starts threads of its own. Two cases are refused with
 * CW_FAILED_PRECONDITION in the child instead: another thread was reading a
 * request or writing an answer in the moment of the fork, so that locks may
 * stay held; the backend is "cuda" and computed before, because CUDA does not
 * survive fork().
 *
 * CUDA: a handle whose backend is "cuda" corrects a batch that lies on its
 * device (CW_CUDA) as a part of the work of the caller's stream, without copies
 * of its arrays to the host. Calls leave the thread's current device as it was.
 *
 * This header is C99 and C++. Every struct begins with its size, so that later
 * versions can add members. */
#ifndef COUNTERWEIGHT_SERVER_EMBEDDED_COUNTERWEIGHT_H_
#define COUNTERWEIGHT_SERVER_EMBEDDED_COUNTERWEIGHT_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define CW_EXPORT __attribute__((visibility("default")))
#else
#define CW_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Rises when a function or a struct changes its meaning. */
#define CW_ABI_VERSION 1

/* The codes that functions return: gRPC's. */
enum {
  CW_OK = 0,
  CW_CANCELLED = 1,
  CW_INVALID_ARGUMENT = 3,
  CW_DEADLINE_EXCEEDED = 4,
  CW_RESOURCE_EXHAUSTED = 8,
  CW_FAILED_PRECONDITION = 9,
  CW_INTERNAL = 13
};

/* The form of a request, and of its answer or violations. */
enum { CW_PROTOBUF = 0, CW_JSON = 1 };

/* The memory of a request's tensors and outputs, all of them. */
enum {
  CW_HOST = 0,
  CW_CUDA = 1 /* of the handle's device, for backend "cuda" */
};

typedef struct cw_handle cw_handle;

typedef struct cw_options {
  size_t struct_size; /* sizeof(cw_options) */
  /* "cpu" or "cuda"; NULL: "cpu". */
  const char* backend;
  /* Threads that compute, the caller's included, from 1 to 1024; 0: as many as
   * the process has CPUs, by its affinity and its control group's quota. For
   * "cpu". */
  int32_t threads;
  /* The device as CUDA counts, >= 0. For "cuda". */
  int32_t device;
  /* Largest request, inclusive: positions, masked ones included, and
   * sequences; 0: a server's default. */
  int64_t max_tokens;
  int64_t max_sequences;
} cw_options;

typedef struct cw_bytes {
  const void* data; /* may be NULL if size is 0 */
  size_t size;      /* bytes */
} cw_bytes;

/* Says where an output goes: `size` bytes, aligned to the element, that overlap
 * neither inputs nor other outputs and live until the call returns. role and
 * dtype are numbers of counterweight.v1.TensorRole and DType. NULL: the library
 * makes the memory, which lives as long as the answer; it makes none on a
 * device. Called by the calling thread, once for each output that is not empty,
 * before anything is computed; must not throw, but may end its thread
 * (pthread_exit): the call then leaves nothing behind. */
typedef void* (*cw_place)(void* context, int32_t role, int32_t dtype,
                          size_t size);

typedef struct cw_request {
  size_t struct_size; /* sizeof(cw_request) */
  int32_t format;     /* CW_PROTOBUF or CW_JSON */
  cw_bytes message;   /* the CorrectRequest */
  /* The bytes of message.tensors, one for each in its order, aligned to their
   * elements. Not to be changed before the call returns; on a device, but by
   * later work of `stream`. */
  const cw_bytes* tensors;
  size_t num_tensors;
  /* NULL: the library makes all memory of outputs. */
  cw_place place;
  void* context; /* what place gets */
  /* Seconds that the call may take, > 0; 0: no limit. */
  double timeout_seconds;
  /* Looked at while computing: the call ends with CW_CANCELLED once another
   * thread has written anything but 0. NULL: never. */
  const volatile int32_t* stop;
  int32_t memory; /* CW_HOST or CW_CUDA */
  /* For CW_CUDA: a cudaStream_t of the handle's device, NULL for the default
   * stream. The tensors are read after all work that the stream holds when
   * cw_correct is called, and work that is put into it after the return comes
   * after the outputs: the stream waits for them, and the tensors may be
   * overwritten or freed in its order. The call itself waits for sums alone, a
   * few KB, and where a loss divides by counts, for 8 bytes a sequence; for
   * versions of policies it copies the tensors piece by piece. The time that
   * the stream's earlier work takes is the call's too. */
  void* stream;
} cw_request;

typedef struct cw_answer {
  cw_bytes message; /* in the request's form; its tensors have no data */
  /* The bytes of message.tensors, one for each in its order: what place said,
   * or memory of the answer's own. */
  const cw_bytes* tensors;
  size_t num_tensors;
} cw_answer;

typedef struct cw_error {
  int32_t code;
  const char* message; /* one sentence or several, never NULL */
  /* A google.rpc.BadRequest in the form of the request that failed: every wrong
   * field, 16 at most. Empty unless the code is CW_INVALID_ARGUMENT. */
  cw_bytes violations;
} cw_error;

/* CW_ABI_VERSION of the library. */
CW_EXPORT int32_t cw_abi_version(void);

/* Semantic version of the library, "0.1.0". */
CW_EXPORT const char* cw_version(void);

/* Makes a handle; starts nothing. `options` may be NULL. *handle is NULL after
 * an error: an option out of its range, or a backend that this build or this
 * machine does not have. */
CW_EXPORT int cw_open(const cw_options* options, cw_handle** handle);

/* Corrects one batch. After CW_OK *answer is to be freed by cw_free; after an
 * error it is NULL and what was placed is undefined. */
CW_EXPORT int cw_correct(cw_handle* handle, const cw_request* request,
                         cw_answer** answer);

/* The sums of the batch that cw_correct answered: a
 * counterweight.v1.PublishRequest of a few KB in `format`, which may be another
 * one than the answer's. A server that gets it by the RPC Publish shows the
 * batch in its metrics as if it had corrected it. *message is valid until the
 * answer's next cw_sums or cw_free; it has size 0 if there is nothing to
 * publish: the request had omit_metrics, or the answer is of another function.
 * For one thread at a time. */
CW_EXPORT int cw_sums(cw_answer* answer, int32_t format, cw_bytes* message);

/* Checks a request without its bytes (tensors, place, stop are not read): what
 * cw_correct would refuse before it looks at numbers. The answer has warnings
 * and the tensors that a correction would have. */
CW_EXPORT int cw_validate(cw_handle* handle, const cw_request* request,
                          cw_answer** answer);

/* A counterweight.v1.ListMethodsResponse. */
CW_EXPORT int cw_list_methods(cw_handle* handle, int32_t format,
                              cw_answer** answer);

/* A counterweight.v1.GetServerInfoResponse about this library; limits and
 * features of transports are absent. */
CW_EXPORT int cw_server_info(cw_handle* handle, int32_t format,
                             cw_answer** answer);

/* Frees an answer; NULL is allowed. */
CW_EXPORT void cw_free(cw_answer* answer);

/* What went wrong in the calling thread's last call that returned a code, valid
 * until its next one. Never NULL; code CW_OK if it succeeded. */
CW_EXPORT const cw_error* cw_last_error(void);

/* Ends the handle and its threads; NULL is allowed. No call may be under way,
 * and answers stay valid. */
CW_EXPORT void cw_close(cw_handle* handle);

#ifdef __cplusplus
}
#endif

#endif /* COUNTERWEIGHT_SERVER_EMBEDDED_COUNTERWEIGHT_H_ */
