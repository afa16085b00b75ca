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

/* The form of a request, and of its answer or violations. In JSON a number of a
 * dialect's block that JSON lacks is {"$numberDouble": "Infinity"}, with
 * "-Infinity" or "NaN" likewise: a text is a text there. */
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

/* Examines one batch for faults of its data: a
 * counterweight.v1.DiagnoseResponse for a DiagnoseRequest, whose bytes are also
 * those of a CorrectRequest with more fields than are read. Of the request,
 * place, context and stream are not read; memory must be CW_HOST. `stop` and
 * `timeout_seconds` are looked at before the examination, which takes
 * milliseconds. */
CW_EXPORT int cw_diagnose(cw_handle* handle, const cw_request* request,
                          cw_answer** answer);

/* The sums of the batch that cw_correct answered, or of the step that cw_merge
 * answered with labels: a counterweight.v1.PublishRequest of a few KB in
 * `format`, which may be another one than the answer's. A server that gets it
 * by the RPC Publish shows the batch in its metrics as if it had corrected it.
 * *message is valid until the answer's next cw_sums or cw_free; it has size 0
 * if there is nothing to publish: the request had omit_metrics, or the answer
 * is of another function. For one thread at a time. */
CW_EXPORT int cw_sums(cw_answer* answer, int32_t format, cw_bytes* message);

/* Checks a request without its bytes (tensors, place, stop are not read): what
 * cw_correct would refuse before it looks at numbers. The answer has warnings
 * and the tensors that a correction would have. */
CW_EXPORT int cw_validate(cw_handle* handle, const cw_request* request,
                          cw_answer** answer);

/* Prepared calls: for batches of one kind, which differ in shape and numbers
 * alone. cw_prepare reads and checks a request once; each cw_run then takes
 * addresses, and writes outputs and numbers. Bits, checks and errors are those
 * of cw_correct.
 *
 *     cw_prepare(handle, &request, &plan);
 *     const cw_signature* signature = cw_signature_of(plan);
 *     for each batch: cw_run(plan, &batch);
 *     cw_discard(plan);
 *
 * A plan may be used by any number of threads at once, and in forked children
 * like its handle. */
typedef struct cw_plan cw_plan;

typedef struct cw_tensor {
  int32_t role;  /* counterweight.v1.TensorRole */
  int32_t dtype; /* counterweight.v1.DType */
} cw_tensor;

/* The numbers of a run, in this order: these, two for each rule (dropped
 * tokens, dropped sequences), the metrics. cw_describe has a warning of each
 * rule that drops more than half of the tokens it covers. A metric that the
 * batch does not have, such as a range over nothing, is CW_ABSENT. */
enum {
  CW_LOSS = 0, /* CW_ABSENT without a policy loss */
  CW_TOKENS = 1,
  CW_NON_FINITE_TOKENS = 2,
  CW_POSITIVE_LOG_PROBS = 3, /* tokens; if > 0, cw_describe has a warning */
  CW_DECODE_SECONDS = 4,
  CW_COMPUTE_SECONDS = 5,
  CW_ENCODE_SECONDS = 6,
  CW_FIRST_RULE = 7
};

/* The bits of CW_ABSENT, a NaN that no computation makes. */
#define CW_ABSENT_BITS UINT64_C(0x7ff8c0de00000000)

/* Most tensors of a request, and outputs of an answer. */
enum { CW_MAX_INPUTS = 8, CW_MAX_OUTPUTS = 8 };

/* What a plan reads and writes. */
typedef struct cw_signature {
  size_t struct_size;
  cw_tensor inputs[CW_MAX_INPUTS]; /* the request's tensors, in its order */
  size_t num_inputs;
  cw_tensor outputs[CW_MAX_OUTPUTS];
  size_t num_outputs;
  const char* const* rules; /* names */
  size_t num_rules;
  const char* const* metrics; /* names, ascending; 0 with omit_metrics */
  size_t num_metrics;
  size_t num_numbers; /* CW_FIRST_RULE + 2 * num_rules + num_metrics */
  /* Lengths of a run's PartialSums; 0 unless the request has partial_sums. */
  size_t num_sums;
  size_t num_maxima;
} cw_signature;

/* One batch of a plan. */
typedef struct cw_batch {
  size_t struct_size; /* sizeof(cw_batch) */
  int64_t num_sequences;
  /* Padded batches: NULL; each sequence has `length` positions. Packed ones:
   * [num_sequences] positions of each; `length` is then
   * PackedLayout.padded_length, -1: absent. */
  const int64_t* sequence_lengths;
  int64_t length;
  /* In the signature's order, as cw_request.tensors; sizes follow from the
   * shape. */
  const void* inputs[CW_MAX_INPUTS];
  /* As cw_place's result; NULL: the output is not wanted. */
  void* outputs[CW_MAX_OUTPUTS];
  double* numbers; /* [num_numbers] */
  /* counterweight.v1.PartialSums, [num_sums] and [num_maxima]; NULL: not
   * wanted. */
  double* sums;
  double* maxima;
  /* As those of cw_request. */
  double timeout_seconds;
  const volatile int32_t* stop;
  int32_t memory;
  /* For CW_CUDA: not 0 if the caller knows that all addresses are of the
   * handle's device, as from arrays that say so. CUDA is not asked for each
   * then, and for others the behaviour is undefined. */
  int32_t knows_places;
  void* stream;
} cw_batch;

/* Reads a request (place, context, stop, timeout_seconds, memory, stream and
 * the bytes of tensors are not read) and checks all but numbers. Its layout is
 * an example: each run has its own. A method that depends on the shape, and a
 * request with group_ids, row_divisors or versions, is read again by each run.
 * After CW_OK *plan is to be discarded; after an error it is NULL. */
CW_EXPORT int cw_prepare(cw_handle* handle, const cw_request* request,
                         cw_plan** plan);

/* What the plan reads and writes; valid as long as the plan. */
CW_EXPORT const cw_signature* cw_signature_of(const cw_plan* plan);

/* Corrects one batch; after an error outputs and numbers are undefined. Reads
 * no message. Weights of a small batch on one thread allocate nothing after the
 * first run; larger batches, losses and dialects' metrics allocate what they
 * compute with. */
CW_EXPORT int cw_run(const cw_plan* plan, const cw_batch* batch);

/* Parts of one batch; each has sums of its own. */
typedef struct cw_parts {
  size_t struct_size; /* sizeof(cw_parts) */
  /* [batch.num_sequences] the part of each row, in [0, num_parts), or -1: it is
   * in none. */
  const int32_t* part_of_row;
  size_t num_parts;
} cw_parts;

/* The sums that cw_run would write for the rows of each part alone, to the bit,
 * by one pass over the batch. The plan's request has partial_sums, and no loss
 * or omit_loss; the batch lies in host memory, and its outputs, numbers, sums
 * and maxima are not written. The answer's message is empty; its tensors are
 * two matrices of float64, PartialSums.sums and .maxima, with a row for each
 * part. CW_FAILED_PRECONDITION: these need a cw_run for each part, because the
 * backend is not "cpu", the method drops sequences or makes tensors before
 * anything else, or tokens are not finite and have versions. */
CW_EXPORT int cw_sum_parts(const cw_plan* plan, const cw_batch* batch,
                           const cw_parts* parts, cw_answer** answer);

/* A counterweight.v1.CorrectResponse of a run's numbers, without tensors,
 * staleness and request_id: loss, metrics, rules, warnings. */
CW_EXPORT int cw_describe(const cw_plan* plan, const double* numbers,
                          int32_t format, cw_answer** answer);

/* Frees a plan, before or after its handle is closed; NULL is allowed. No run
 * may be under way. */
CW_EXPORT void cw_discard(cw_plan* plan);

/* Adds the sums of a step's parts, and finishes them: a
 * counterweight.v1.MergeSumsResponse for a MergeSumsRequest in `format`. The
 * parts are CorrectResponse.sums of requests with partial_sums, or what runs
 * wrote to cw_batch.sums and cw_batch.maxima. */
CW_EXPORT int cw_merge(cw_handle* handle, cw_bytes request, int32_t format,
                       cw_answer** answer);

/* PartialSums in the caller's memory. */
typedef struct cw_partial {
  double* sums; /* [num_sums] */
  size_t num_sums;
  double* maxima; /* [num_maxima] */
  size_t num_maxima;
} cw_partial;

/* The same with the parts as arrays: `request` has none, and the answer no
 * sums. parts: [num_parts], num_parts >= 1. After CW_OK parts[0] holds the sums
 * of all; after an error it is as it was. */
CW_EXPORT int cw_merge_arrays(cw_handle* handle, cw_bytes request,
                              int32_t format, const cw_partial* parts,
                              size_t num_parts, cw_answer** answer);

/* Declares the method of a run: a counterweight.v1.DeclareRunResponse for a
 * DeclareRunRequest in `format`. From then on cw_correct and cw_prepare warn of
 * another method of that run; plans from before do not. A handle keeps the
 * declarations of 64 runs, the newest. */
CW_EXPORT int cw_declare_run(cw_handle* handle, cw_bytes request,
                             int32_t format, cw_answer** answer);

/* Advantages of groups of answers from their rewards: a
 * counterweight.v1.GroupAdvantagesResponse for a GroupAdvantagesRequest in
 * `format`. */
CW_EXPORT int cw_group_advantages(cw_handle* handle, cw_bytes request,
                                  int32_t format, cw_answer** answer);

/* A counterweight.v1.Receipt, which has the meaning and the formula of each. */
typedef struct cw_receipt {
  uint64_t fingerprint;
  int64_t tokens;
  int64_t changed_tokens;
  int64_t dropped_tokens;
  double weight_excess;
} cw_receipt;

/* Adds rows to *receipt, which begins with zeros; dropped_tokens stays as it
 * is. weights, mask: [sum of lengths], row after row; weights may be NULL: all
 * are 1. lengths: [num_rows], each >= 0. Needs no handle, and always succeeds.
 */
CW_EXPORT void cw_add_receipt(const float* weights, const uint8_t* mask,
                              const int64_t* lengths, size_t num_rows,
                              cw_receipt* receipt);

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

/* Ends the handle and its threads; NULL is allowed. No call may be under way.
 * Answers stay valid; plans run no more (CW_FAILED_PRECONDITION). */
CW_EXPORT void cw_close(cw_handle* handle);

#ifdef __cplusplus
}
#endif

#endif /* COUNTERWEIGHT_SERVER_EMBEDDED_COUNTERWEIGHT_H_ */
