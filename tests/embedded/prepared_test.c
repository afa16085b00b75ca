/* Prepared calls: the bytes of cw_correct, its errors, and no allocation. */
#include "check.h"

/* Counts every allocation of the process while `counting`. The library's calls
 * of malloc come here, because a program precedes its libraries. */
extern void* __libc_malloc(size_t size);
static volatile int counting;
static volatile long allocations;

void* malloc(size_t size) {
  if (counting) __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
  return __libc_malloc(size);
}

enum { kWeights = 0, kKeepMask = 1 };

typedef struct {
  float weights[6];
  uint8_t keep_mask[6];
  double numbers[128];
  cw_batch batch;
} Run;

static void MakeRun(const Batch* batch, Run* run) {
  memset(run, 0, sizeof(*run));
  run->batch.struct_size = sizeof(run->batch);
  run->batch.num_sequences = 2;
  run->batch.length = 3;
  run->batch.inputs[0] = kRollout;
  run->batch.inputs[1] = batch->old_log_probs;
  run->batch.inputs[2] = kMask;
  run->batch.outputs[kWeights] = run->weights;
  run->batch.outputs[kKeepMask] = run->keep_mask;
  run->batch.numbers = run->numbers;
}

static cw_plan* Prepare(cw_handle* handle, Batch* batch) {
  cw_plan* plan = NULL;
  MakeBatch(batch);
  batch->request.tensors = NULL;
  batch->request.num_tensors = 0;
  CHECK(cw_prepare(handle, &batch->request, &plan) == CW_OK);
  CHECK(plan != NULL);
  return plan;
}

static void CheckOutputs(const Run* run) {
  static const float kExpected[6] = {1.0f, 2.0f, 0.0f, 0.5f, 1.0f, 2.0f};
  int i;
  for (i = 0; i < 6; ++i) CHECK(fabsf(run->weights[i] - kExpected[i]) < 1e-6f);
  CHECK(memcmp(run->keep_mask, kMask, sizeof(kMask)) == 0);
}

/* Returns the metric of that name. */
static double Metric(const cw_plan* plan, const Run* run, const char* name) {
  const cw_signature* const signature = cw_signature_of(plan);
  size_t i;
  for (i = 0; i < signature->num_metrics; ++i) {
    if (strcmp(signature->metrics[i], name) == 0) {
      return run->numbers[CW_FIRST_RULE + 2 * signature->num_rules + i];
    }
  }
  CHECK(!"the metric is there");
  return 0.0;
}

static void TestSignature(cw_handle* handle) {
  Batch batch;
  cw_plan* const plan = Prepare(handle, &batch);
  const cw_signature* const signature = cw_signature_of(plan);
  CHECK(signature->struct_size == sizeof(*signature));
  CHECK(signature->num_inputs == 3 && signature->num_outputs == 2);
  CHECK(signature->inputs[0].role == 1 && signature->inputs[0].dtype == 1);
  CHECK(signature->inputs[2].role == 5 && signature->inputs[2].dtype == 4);
  CHECK(signature->outputs[0].role == 16 && signature->outputs[0].dtype == 1);
  CHECK(signature->outputs[1].role == 17 && signature->outputs[1].dtype == 4);
  CHECK(signature->num_rules == 0);
  CHECK(signature->num_metrics > 20);
  CHECK(signature->num_numbers == CW_FIRST_RULE + signature->num_metrics);
  CHECK(cw_signature_of(NULL) == NULL);
  cw_discard(plan);
  cw_discard(NULL);
}

static void TestRuns(cw_handle* handle) {
  static const int64_t kLengths[3] = {2, 0, 4};
  Batch batch;
  Run run;
  cw_answer* answer = NULL;
  double absent;
  const uint64_t bits = CW_ABSENT_BITS;
  cw_plan* const plan = Prepare(handle, &batch);
  MakeRun(&batch, &run);
  CHECK(cw_run(plan, &run.batch) == CW_OK);
  CHECK(cw_last_error()->code == CW_OK);
  CheckOutputs(&run);
  memcpy(&absent, &bits, sizeof(absent));
  CHECK(memcmp(&run.numbers[CW_LOSS], &absent, sizeof(absent)) == 0);
  CHECK(run.numbers[CW_TOKENS] == 5.0);
  CHECK(run.numbers[CW_NON_FINITE_TOKENS] == 0.0);
  CHECK(run.numbers[CW_POSITIVE_LOG_PROBS] == 0.0);
  CHECK(run.numbers[CW_COMPUTE_SECONDS] > 0.0);
  CHECK(Metric(plan, &run, "tokens") == 5.0);
  CHECK(Metric(plan, &run, "weight_max") == 2.0);
  /* As a message it is the one of cw_correct. */
  CHECK(cw_describe(plan, run.numbers, CW_JSON, &answer) == CW_OK);
  CHECK(Has(answer->message, "\"weight_max\":2"));
  CHECK(Has(answer->message, "\"backend\":\"cpu\""));
  CHECK(Has(answer->message, "\"numericsVersion\":3"));
  cw_free(answer);
  /* Packed, and of another number of sequences. */
  run.batch.num_sequences = 3;
  run.batch.sequence_lengths = kLengths;
  run.batch.length = -1;
  memset(run.weights, 0, sizeof(run.weights));
  CHECK(cw_run(plan, &run.batch) == CW_OK);
  CheckOutputs(&run);
  CHECK(Metric(plan, &run, "sequences") == 2.0);
  run.batch.length = 5; /* a stated width */
  CHECK(cw_run(plan, &run.batch) == CW_OK);
  CheckOutputs(&run);
  /* Nothing at all. */
  MakeRun(&batch, &run);
  run.batch.num_sequences = 0;
  CHECK(cw_run(plan, &run.batch) == CW_OK);
  CHECK(run.numbers[CW_TOKENS] == 0.0);
  /* An output that is not wanted. */
  MakeRun(&batch, &run);
  run.batch.outputs[kKeepMask] = NULL;
  CHECK(cw_run(plan, &run.batch) == CW_OK);
  CHECK(run.weights[1] == 2.0f && run.keep_mask[0] == 0);
  cw_discard(plan);
}

/* That the run is refused as cw_correct refuses the same. */
static void Refused(const cw_plan* plan, const Run* run, const char* what) {
  CHECK(cw_run(plan, &run->batch) == CW_INVALID_ARGUMENT);
  if (strstr(cw_last_error()->message, what) == NULL) {
    fprintf(stderr, "\"%s\" lacks \"%s\"\n", cw_last_error()->message, what);
    exit(1);
  }
}

static void TestRefusals(cw_handle* handle) {
  static const float kNotFinite[6] = {-1.0f, -2.0f, -1.0f, NAN, -3.0f, -2.0f};
  static const uint8_t kNoMask[6] = {1, 1, 0, 2, 1, 1};
  static const int64_t kTooLong[1] = {INT64_MAX};
  static const int64_t kOne[1] = {1};
  Batch batch;
  Run run;
  cw_plan* const plan = Prepare(handle, &batch);
#define REFUSED(change, what)  \
  do {                         \
    MakeRun(&batch, &run);     \
    change;                    \
    Refused(plan, &run, what); \
  } while (0)
  REFUSED(run.batch.inputs[0] = kNotFinite,
          "tensors[ROLLOUT_LOG_PROBS]: rollout_log_probs is NaN or infinite at "
          "sequence 1, token 0");
  REFUSED(run.batch.inputs[2] = kNoMask, "position 3 holds 2");
  REFUSED(run.batch.inputs[1] = NULL, "batch.inputs[] must not be NULL");
  REFUSED(run.batch.inputs[2] = NULL, "batch.inputs[] must not be NULL");
  REFUSED((run.batch.inputs[2] = NULL, run.batch.num_sequences = 1,
           run.batch.sequence_lengths = kOne, run.batch.length = -1),
          "batch.inputs[] must not be NULL");
  REFUSED(run.batch.inputs[1] = (const char*)kRollout + 1,
          "tensors[1].data: lies at an address that is not a multiple");
  REFUSED(run.batch.outputs[0] = (char*)run.weights + 2,
          "outputs[weights]: was placed at an address");
  REFUSED(run.batch.outputs[0] = batch.old_log_probs,
          "outputs[weights]: was placed where an input lies");
  REFUSED(run.batch.outputs[1] = run.weights,
          "outputs[keep_mask]: was placed where another output lies");
  REFUSED(run.batch.length = -1, "layout.padded.length: must be >= 0");
  REFUSED(run.batch.length = INT64_MAX, "layout.padded.length: must be >= 0");
  REFUSED(run.batch.num_sequences = -1, "num_sequences must be >= 0");
  REFUSED(run.batch.num_sequences = INT64_MAX, "layout.padded.num_sequences");
  REFUSED((run.batch.num_sequences = 1, run.batch.sequence_lengths = kTooLong,
           run.batch.length = -1),
          "layout.packed.sequence_lengths[0]");
  REFUSED(run.batch.struct_size = 8, "struct_size");
  REFUSED(run.batch.numbers = NULL, "numbers must not be NULL");
  REFUSED(run.batch.memory = 2, "memory must be");
  REFUSED(run.batch.memory = CW_CUDA, "computes on the CPU");
  REFUSED(run.batch.timeout_seconds = NAN, "timeout_seconds must be >= 0");
  CHECK(cw_run(plan, NULL) == CW_INVALID_ARGUMENT);
  MakeRun(&batch, &run);
  CHECK(cw_run(NULL, &run.batch) == CW_INVALID_ARGUMENT);
  CHECK(cw_describe(plan, NULL, CW_JSON, (cw_answer*[]){NULL}) ==
        CW_INVALID_ARGUMENT);
  /* And the plan is as good as new. */
  CHECK(cw_run(plan, &run.batch) == CW_OK);
  CheckOutputs(&run);
  cw_discard(plan);
}

static void TestStops(cw_handle* handle) {
  static const int32_t kStop = 1;
  Batch batch;
  Run run;
  cw_plan* const plan = Prepare(handle, &batch);
  MakeRun(&batch, &run);
  run.batch.stop = &kStop;
  CHECK(cw_run(plan, &run.batch) == CW_CANCELLED);
  run.batch.stop = NULL;
  run.batch.timeout_seconds = 1e-12;
  CHECK(cw_run(plan, &run.batch) == CW_DEADLINE_EXCEEDED);
  run.batch.timeout_seconds = 1e300;
  CHECK(cw_run(plan, &run.batch) == CW_OK);
  cw_discard(plan);
}

static void TestPrepareRefuses(cw_handle* handle) {
  static const char kUnknown[] =
      "{\"layout\": {\"padded\": {}}, \"tensors\": ["
      "{\"role\": \"TENSOR_ROLE_RESPONSE_MASK\", \"dtype\": \"D_TYPE_U8\"}],"
      "\"method\": {\"preset\": {\"name\": \"token_tiss\"}}}";
  Batch batch;
  cw_plan* plan = (cw_plan*)&batch;
  MakeBatch(&batch);
  batch.request.message.data = kUnknown;
  batch.request.message.size = sizeof(kUnknown) - 1;
  CHECK(cw_prepare(handle, &batch.request, &plan) == CW_INVALID_ARGUMENT);
  CHECK(plan == NULL);
  CHECK(Has(cw_last_error()->violations, "method.preset.name"));
  CHECK(cw_prepare(handle, NULL, &plan) == CW_INVALID_ARGUMENT);
  CHECK(cw_prepare(handle, &batch.request, NULL) == CW_INVALID_ARGUMENT);
  CHECK(cw_prepare(NULL, &batch.request, &plan) == CW_INVALID_ARGUMENT);
}

static void TestAllocatesNothing(cw_handle* handle) {
  Batch batch;
  Run run;
  int i;
  cw_plan* const plan = Prepare(handle, &batch);
  MakeRun(&batch, &run);
  for (i = 0; i < 3; ++i) CHECK(cw_run(plan, &run.batch) == CW_OK);
  counting = 1;
  CHECK(malloc(1) != NULL);
  CHECK(allocations == 1); /* it counts */
  for (i = 0; i < 100; ++i) cw_run(plan, &run.batch);
  counting = 0;
  fprintf(stderr, "allocations of 100 runs: %ld\n", allocations - 1);
  CHECK(allocations == 1);
  cw_discard(plan);
}

static void TestOutlivesItsHandle(void) {
  Batch batch;
  Run run;
  cw_handle* handle = NULL;
  cw_answer* answer = NULL;
  cw_plan* plan;
  CHECK(cw_open(NULL, &handle) == CW_OK);
  plan = Prepare(handle, &batch);
  MakeRun(&batch, &run);
  CHECK(cw_run(plan, &run.batch) == CW_OK);
  cw_close(handle);
  CHECK(cw_run(plan, &run.batch) == CW_FAILED_PRECONDITION);
  CHECK(strstr(cw_last_error()->message, "closed") != NULL);
  CHECK(cw_describe(plan, run.numbers, CW_JSON, &answer) == CW_OK);
  cw_free(answer);
  cw_discard(plan);
}

int main(void) {
  cw_options options = {0};
  cw_handle* handle = NULL;
  options.struct_size = sizeof(options);
  options.threads = 1;
  CHECK(cw_open(&options, &handle) == CW_OK);
  TestSignature(handle);
  TestRuns(handle);
  TestRefusals(handle);
  TestStops(handle);
  TestPrepareRefuses(handle);
  TestAllocatesNothing(handle);
  cw_close(handle);
  TestOutlivesItsHandle();
  return 0;
}
