/* Sums of the parts of a step: runs' and cw_correct's are the same, and merged
 * in either format, or as arrays, they give what one batch of all rows has. */
#include "check.h"

enum { kMostNumbers = 1024, kParts = 1 };

typedef struct {
  double sums[kMostNumbers];
  double maxima[kMostNumbers];
  size_t num_sums;
  size_t num_maxima;
} Sums;

typedef struct {
  char bytes[1 << 17];
  size_t size;
} Text;

static void Append(Text* text, const void* bytes, size_t size) {
  CHECK(text->size + size < sizeof(text->bytes));
  memcpy(text->bytes + text->size, bytes, size);
  text->size += size;
  text->bytes[text->size] = '\0';
}

static void AppendText(Text* text, const char* words) {
  Append(text, words, strlen(words));
}

static cw_bytes BytesOf(const Text* text) {
  cw_bytes bytes;
  bytes.data = text->bytes;
  bytes.size = text->size;
  return bytes;
}

/* kTokenTis with these members more. */
static void MakeSummedBatch(Batch* batch, Text* message, const char* method) {
  MakeBatch(batch);
  message->size = 0;
  Append(message, kTokenTis,
         (size_t)(strstr(kTokenTis, "\"method\"") - kTokenTis));
  AppendText(message, "\"partialSums\": true, \"method\": ");
  AppendText(message, method);
  AppendText(message, "}");
  batch->request.message = BytesOf(message);
}

static const char kMethod[] = "{\"preset\": {\"name\": \"token_tis\"}}";
static const char kOther[] =
    "{\"preset\": {\"name\": \"token_tis\", \"parameters\": {\"upper\": 3}}}";

/* Reads the numbers of the first list with that name after `at`, which JSON
 * writes as text where they are not finite. */
static const char* ReadList(const char* at, const char* name, double* numbers,
                            size_t* count) {
  *count = 0;
  at = strstr(at, name);
  CHECK(at != NULL);
  for (at += strlen(name); *at != ']';) {
    char* end = NULL;
    CHECK(*count < kMostNumbers);
    numbers[(*count)++] = strtod(at + (*at == '"'), &end);
    at = end + (*end == '"');
    if (*at == ',') ++at;
  }
  return at;
}

static void ReadJson(cw_bytes message, Sums* sums) {
  Text text = {{0}, 0};
  const char* at;
  Append(&text, message.data, message.size);
  at =
      ReadList(text.bytes, "\"sums\":{\"sums\":[", sums->sums, &sums->num_sums);
  ReadList(at, "\"maxima\":[", sums->maxima, &sums->num_maxima);
}

static void AppendJson(Text* text, const Sums* sums) {
  char number[64];
  size_t i;
  AppendText(text, "{\"sums\": [");
  for (i = 0; i < sums->num_sums + sums->num_maxima; ++i) {
    const int is_sum = i < sums->num_sums;
    const double value =
        is_sum ? sums->sums[i] : sums->maxima[i - sums->num_sums];
    if (i == sums->num_sums) {
      AppendText(text, "], \"maxima\": [");
    } else if (i > 0) {
      AppendText(text, ", ");
    }
    if (isnan(value)) {
      AppendText(text, "\"NaN\"");
    } else if (isinf(value)) {
      AppendText(text, value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    } else {
      snprintf(number, sizeof(number), "%.17g", value);
      AppendText(text, number);
    }
  }
  AppendText(text, "]}");
}

static void AppendVarint(Text* text, size_t value) {
  do {
    const unsigned char byte =
        (unsigned char)((value & 127) | (value > 127 ? 128 : 0));
    Append(text, &byte, 1);
    value >>= 7;
  } while (value > 0);
}

static size_t ReadVarint(const unsigned char** at) {
  size_t value = 0;
  int shift = 0;
  do {
    value |= (size_t)(**at & 127) << shift;
    shift += 7;
  } while (*(*at)++ > 127);
  return value;
}

static void AppendPacked(Text* text, char tag, const double* numbers,
                         size_t count) {
  Append(text, &tag, 1);
  AppendVarint(text, count * sizeof(double));
  Append(text, numbers, count * sizeof(double));
}

/* MergeSumsRequest.parts. */
static void AppendPart(Text* text, const Sums* sums) {
  static Text part;
  part.size = 0;
  AppendPacked(&part, 0x0a, sums->sums, sums->num_sums);
  AppendPacked(&part, 0x12, sums->maxima, sums->num_maxima);
  Append(text, "\x0a", 1);
  AppendVarint(text, part.size);
  Append(text, part.bytes, part.size);
}

static void ReadPacked(const unsigned char** at, unsigned char tag,
                       double* numbers, size_t* count) {
  size_t size;
  CHECK(*(*at)++ == tag);
  size = ReadVarint(at);
  *count = size / sizeof(double);
  CHECK(*count <= kMostNumbers);
  memcpy(numbers, *at, size);
  *at += size;
}

/* The first field of a MergeSumsResponse. */
static void ReadProtobuf(cw_bytes message, Sums* sums) {
  const unsigned char* at = (const unsigned char*)message.data;
  CHECK(message.size > 0 && *at++ == 0x0a);
  ReadVarint(&at);
  ReadPacked(&at, 0x0a, sums->sums, &sums->num_sums);
  ReadPacked(&at, 0x12, sums->maxima, &sums->num_maxima);
}

/* That all bytes are the same, but for the number of parts. */
static void CheckSame(const Sums* a, const Sums* b) {
  Sums copy = *a;
  CHECK(a->num_sums == b->num_sums && a->num_maxima == b->num_maxima);
  CHECK(a->num_sums > kParts && a->num_maxima > 0);
  copy.sums[kParts] = b->sums[kParts];
  CHECK(memcmp(copy.sums, b->sums, b->num_sums * sizeof(double)) == 0);
  CHECK(memcmp(a->maxima, b->maxima, b->num_maxima * sizeof(double)) == 0);
}

/* A run of `rows` rows from `first` on. */
typedef struct {
  float weights[6];
  uint8_t keep_mask[6];
  double numbers[128];
  cw_batch batch;
} Run;

static void MakeRun(const Batch* batch, int first, int rows, Sums* sums,
                    Run* run) {
  memset(run, 0, sizeof(*run));
  run->batch.struct_size = sizeof(run->batch);
  run->batch.num_sequences = rows;
  run->batch.length = 3;
  run->batch.inputs[0] = kRollout + 3 * first;
  run->batch.inputs[1] = batch->old_log_probs + 3 * first;
  run->batch.inputs[2] = kMask + 3 * first;
  run->batch.outputs[0] = run->weights;
  run->batch.outputs[1] = run->keep_mask;
  run->batch.numbers = run->numbers;
  run->batch.sums = sums == NULL ? NULL : sums->sums;
  run->batch.maxima = sums == NULL ? NULL : sums->maxima;
}

static cw_plan* Prepare(cw_handle* handle, const Batch* batch, Sums* sums) {
  cw_request request = batch->request;
  cw_plan* plan = NULL;
  const cw_signature* signature;
  request.tensors = NULL;
  request.num_tensors = 0;
  CHECK(cw_prepare(handle, &request, &plan) == CW_OK);
  signature = cw_signature_of(plan);
  CHECK(signature->num_sums <= kMostNumbers);
  CHECK(signature->num_maxima <= kMostNumbers);
  sums->num_sums = signature->num_sums;
  sums->num_maxima = signature->num_maxima;
  return plan;
}

static void Correct(cw_handle* handle, const Batch* batch, Sums* sums,
                    Text* message) {
  cw_answer* answer = NULL;
  CHECK(cw_correct(handle, &batch->request, &answer) == CW_OK);
  ReadJson(answer->message, sums);
  message->size = 0;
  Append(message, answer->message.data, answer->message.size);
  cw_free(answer);
}

static void TestRunsHaveTheSumsOfCorrect(cw_handle* handle) {
  static Text message, text;
  static Sums expected, sums, untouched;
  Batch batch;
  Run run;
  cw_plan* plan;
  MakeSummedBatch(&batch, &message, kMethod);
  Correct(handle, &batch, &expected, &text);
  plan = Prepare(handle, &batch, &sums);
  CHECK(sums.num_sums == expected.num_sums);
  CHECK(sums.num_maxima == expected.num_maxima);
  MakeRun(&batch, 0, 2, &sums, &run);
  CHECK(cw_run(plan, &run.batch) == CW_OK);
  CheckSame(&sums, &expected);
  CHECK(sums.sums[kParts] == 1.0);
  /* Neither is needed, nor both. */
  untouched = sums;
  memset(untouched.sums, 0x5a, sizeof(untouched.sums));
  untouched.num_sums = untouched.num_maxima = 0;
  MakeRun(&batch, 0, 2, &untouched, &run);
  run.batch.sums = NULL;
  CHECK(cw_run(plan, &run.batch) == CW_OK);
  CHECK(memcmp(untouched.maxima, expected.maxima,
               expected.num_maxima * sizeof(double)) == 0);
  MakeRun(&batch, 0, 2, &sums, &run);
  memset(sums.sums, 0, sizeof(sums.sums));
  run.batch.maxima = NULL;
  CHECK(cw_run(plan, &run.batch) == CW_OK);
  CheckSame(&sums, &expected);
  MakeRun(&batch, 0, 2, NULL, &run);
  CHECK(cw_run(plan, &run.batch) == CW_OK);
  CHECK(run.weights[1] == 2.0f);
  cw_discard(plan);
  /* Who asks for none has none. */
  MakeBatch(&batch);
  plan = Prepare(handle, &batch, &sums);
  CHECK(sums.num_sums == 0 && sums.num_maxima == 0);
  MakeRun(&batch, 0, 2, &untouched, &run);
  memset(untouched.sums, 0x5a, sizeof(untouched.sums));
  memset(untouched.maxima, 0x5a, sizeof(untouched.maxima));
  CHECK(cw_run(plan, &run.batch) == CW_OK);
  CHECK(memcmp(untouched.sums, untouched.maxima, sizeof(untouched.sums)) == 0);
  cw_discard(plan);
}

/* Each sequence as a part of its own, both as one, and in none. */
static void TestPartsAreThoseOfTheirRows(cw_handle* handle) {
  static Text message;
  static Sums expected;
  static const int32_t kPartOfRow[][2] = {{1, 0}, {0, 0}, {-1, 0}};
  static const int kFirst[] = {1, 0, 1};
  static const int kRows[] = {1, 2, 1};
  Batch batch;
  Run whole, run;
  cw_plan* plan;
  int i;
  MakeSummedBatch(&batch, &message, kMethod);
  plan = Prepare(handle, &batch, &expected);
  MakeRun(&batch, 0, 2, NULL, &whole);
  whole.batch.numbers = NULL;
  for (i = 0; i < 3; ++i) {
    cw_parts parts = {sizeof(parts), NULL, 0};
    cw_answer* answer = NULL;
    parts.part_of_row = kPartOfRow[i];
    parts.num_parts = i == 0 ? 2 : 1;
    CHECK(cw_sum_parts(plan, &whole.batch, &parts, &answer) == CW_OK);
    CHECK(answer->message.size == 0 && answer->num_tensors == 2);
    CHECK(answer->tensors[0].size ==
          parts.num_parts * expected.num_sums * sizeof(double));
    CHECK(answer->tensors[1].size ==
          parts.num_parts * expected.num_maxima * sizeof(double));
    MakeRun(&batch, kFirst[i], kRows[i], &expected, &run);
    CHECK(cw_run(plan, &run.batch) == CW_OK);
    CHECK(memcmp(answer->tensors[0].data, expected.sums,
                 expected.num_sums * sizeof(double)) == 0);
    CHECK(memcmp(answer->tensors[1].data, expected.maxima,
                 expected.num_maxima * sizeof(double)) == 0);
    cw_free(answer);
  }
  cw_discard(plan);
}

static void CheckPartsAreRefused(const cw_plan* plan, const cw_batch* batch,
                                 const cw_parts* parts, const char* what) {
  cw_answer* answer = NULL;
  CHECK(cw_sum_parts(plan, batch, parts, &answer) == CW_INVALID_ARGUMENT);
  CHECK(answer == NULL);
  CHECK(strstr(cw_last_error()->message, what) != NULL);
}

static void TestWrongPartsAreNamed(cw_handle* handle) {
  static Text message;
  static Sums sums;
  static const int32_t kRight[2] = {0, 1};
  static const int32_t kHigh[2] = {0, 2};
  static const int32_t kLow[2] = {-2, 0};
  Batch batch;
  Run run;
  cw_plan* plan;
  cw_parts parts = {sizeof(parts), NULL, 2};
  MakeSummedBatch(&batch, &message, kMethod);
  plan = Prepare(handle, &batch, &sums);
  MakeRun(&batch, 0, 2, NULL, &run);
  CheckPartsAreRefused(plan, &run.batch, NULL, "parts must not be NULL");
  CheckPartsAreRefused(plan, &run.batch, &parts, "part_of_row must not be");
  parts.part_of_row = kHigh;
  CheckPartsAreRefused(plan, &run.batch, &parts,
                       "part_of_row[1] is 2, which is not in [-1, 2)");
  parts.part_of_row = kLow;
  CheckPartsAreRefused(plan, &run.batch, &parts, "part_of_row[0] is -2");
  parts.part_of_row = kRight;
  parts.num_parts = (size_t)1 << 40;
  CheckPartsAreRefused(plan, &run.batch, &parts, "at most 1048576");
  parts.num_parts = 2;
  parts.struct_size = 3;
  CheckPartsAreRefused(plan, &run.batch, &parts, "struct_size");
  parts.struct_size = sizeof(parts);
  run.batch.struct_size = 3;
  CheckPartsAreRefused(plan, &run.batch, &parts, "batch.struct_size");
  cw_discard(plan);
  MakeBatch(&batch);
  plan = Prepare(handle, &batch, &sums);
  MakeRun(&batch, 0, 2, NULL, &run);
  CheckPartsAreRefused(plan, &run.batch, &parts, "must have partial_sums");
  cw_discard(plan);
}

/* Where a member's value is in JSON; it has no spaces. */
/* What a system refuses of a batch, the step's sums decide: here, that no
 * token counts. */
static void TestAPartMayBeWhatABatchMayNot(cw_handle* handle) {
  static const char kVerl[] =
      "{\"dialect\": {\"system\": \"verl\", \"release\": \"0.9.1\", "
      "\"block\": {\"rollout_is\": \"token\"}}}";
  static const uint8_t kNone[6] = {0, 0, 0, 0, 0, 0};
  static Text message, text;
  static Sums expected, sums;
  Batch batch;
  Run run;
  cw_plan* plan;
  size_t i;
  const cw_signature* signature;
  MakeSummedBatch(&batch, &message, kVerl);
  batch.tensors[2].data = kNone;
  Correct(handle, &batch, &expected, &text);
  plan = Prepare(handle, &batch, &sums);
  MakeRun(&batch, 0, 2, &sums, &run);
  run.batch.inputs[2] = kNone;
  CHECK(cw_run(plan, &run.batch) == CW_OK);
  CheckSame(&sums, &expected);
  signature = cw_signature_of(plan);
  CHECK(signature->num_metrics > 0);
  for (i = signature->num_numbers - signature->num_metrics;
       i < signature->num_numbers; ++i) {
    uint64_t bits = 0;
    memcpy(&bits, &run.numbers[i], sizeof(bits));
    CHECK(bits == CW_ABSENT_BITS);
  }
  cw_discard(plan);
}

static size_t Member(const char* json, const char* name, const char** value) {
  char quoted[128];
  snprintf(quoted, sizeof(quoted), "\"%s\":", name);
  *value = strstr(json, quoted);
  if (*value == NULL) return 0;
  *value += strlen(quoted);
  return strcspn(*value, ",}");
}

/* That both have all metrics of the plan, in the same digits. */
static void CheckSameMetrics(const cw_plan* plan, const Text* a,
                             const Text* b) {
  const cw_signature* const signature = cw_signature_of(plan);
  size_t i;
  CHECK(signature->num_metrics > 20);
  for (i = 0; i < signature->num_metrics; ++i) {
    const char *left, *right;
    const size_t size = Member(a->bytes, signature->metrics[i], &left);
    CHECK(size > 0);
    CHECK(Member(b->bytes, signature->metrics[i], &right) == size);
    CHECK(memcmp(left, right, size) == 0);
  }
}

/* The step's two sequences as parts, in both orders and formats. */
static void TestMergesParts(cw_handle* handle) {
  static Text message, whole_text, request, text;
  static Sums whole, parts[2], merged;
  Batch batch;
  Run run;
  cw_plan* plan;
  int i, is_json;
  MakeSummedBatch(&batch, &message, kMethod);
  Correct(handle, &batch, &whole, &whole_text);
  plan = Prepare(handle, &batch, &parts[0]);
  parts[1] = parts[0];
  for (i = 0; i < 2; ++i) {
    MakeRun(&batch, i, 1, &parts[i], &run);
    CHECK(cw_run(plan, &run.batch) == CW_OK);
  }
  for (i = 0; i < 4; ++i) {
    cw_answer* answer = NULL;
    is_json = i / 2;
    request.size = text.size = 0;
    if (is_json) {
      AppendText(&request, "{\"parts\": [");
      AppendJson(&request, &parts[i % 2]);
      AppendText(&request, ", ");
      AppendJson(&request, &parts[1 - i % 2]);
      AppendText(&request, "], \"method\": ");
      AppendText(&request, kMethod);
      AppendText(&request, "}");
    } else {
      AppendPart(&request, &parts[i % 2]);
      AppendPart(&request, &parts[1 - i % 2]);
      AppendText(&request, "\x12\x0d\x0a\x0b\x0a\x09token_tis");
    }
    CHECK(cw_merge(handle, BytesOf(&request), is_json ? CW_JSON : CW_PROTOBUF,
                   &answer) == CW_OK);
    CHECK(cw_last_error()->code == CW_OK);
    CHECK(answer->num_tensors == 0);
    if (is_json) {
      ReadJson(answer->message, &merged);
      Append(&text, answer->message.data, answer->message.size);
      CheckSameMetrics(plan, &text, &whole_text);
    } else {
      ReadProtobuf(answer->message, &merged);
      CHECK(Has(answer->message, "effective_sample_size"));
    }
    cw_free(answer);
    CHECK(merged.sums[kParts] == 2.0);
    CheckSame(&merged, &whole);
  }
  cw_discard(plan);
}

static void CheckRefused(cw_handle* handle, cw_bytes request, int32_t format,
                         const char* words) {
  cw_answer* answer = (cw_answer*)handle;
  CHECK(cw_merge(handle, request, format, &answer) == CW_INVALID_ARGUMENT);
  CHECK(answer == NULL);
  CHECK(cw_last_error()->code == CW_INVALID_ARGUMENT);
  if (strstr(cw_last_error()->message, words) == NULL) {
    fprintf(stderr, "\"%s\" lacks \"%s\"\n", cw_last_error()->message, words);
    exit(1);
  }
}

/* The same with the parts as arrays, the first of which takes the sums. */
static void TestMergesArrays(cw_handle* handle) {
  static Text message, text;
  static Sums whole, parts[2], other, kept;
  Batch batch;
  Run run;
  cw_plan* plan;
  cw_partial arrays[2];
  cw_answer* answer = NULL;
  cw_bytes none = {NULL, 0};
  int i;
  MakeSummedBatch(&batch, &message, kOther);
  Correct(handle, &batch, &other, &text);
  MakeSummedBatch(&batch, &message, kMethod);
  Correct(handle, &batch, &whole, &text);
  plan = Prepare(handle, &batch, &parts[0]);
  parts[1] = parts[0];
  for (i = 0; i < 2; ++i) {
    MakeRun(&batch, 1 - i, 1, &parts[i], &run);
    CHECK(cw_run(plan, &run.batch) == CW_OK);
    arrays[i].sums = parts[i].sums;
    arrays[i].num_sums = parts[i].num_sums;
    arrays[i].maxima = parts[i].maxima;
    arrays[i].num_maxima = parts[i].num_maxima;
  }
  cw_discard(plan);
  CHECK(cw_merge_arrays(handle, none, CW_PROTOBUF, arrays, 2, &answer) ==
        CW_OK);
  CHECK(!Has(answer->message, "effective_sample_size"));
  cw_free(answer);
  CHECK(parts[0].sums[kParts] == 2.0);
  CheckSame(&parts[0], &whole);
  /* After an error they are as they were. */
  kept = parts[0];
  arrays[1].sums = other.sums;
  arrays[1].maxima = other.maxima;
  CHECK(cw_merge_arrays(handle, none, CW_PROTOBUF, arrays, 2, &answer) ==
        CW_INVALID_ARGUMENT);
  CHECK(answer == NULL);
  CHECK(strstr(cw_last_error()->message, "parts: are not of one method") !=
        NULL);
  CHECK(memcmp(&kept, &parts[0], sizeof(kept)) == 0);
  arrays[1].maxima = NULL;
  CHECK(cw_merge_arrays(handle, none, CW_PROTOBUF, arrays, 2, &answer) ==
        CW_INVALID_ARGUMENT);
  CHECK(strstr(cw_last_error()->message, "must not be NULL") != NULL);
  CHECK(cw_merge_arrays(handle, none, CW_PROTOBUF, NULL, 2, &answer) ==
        CW_INVALID_ARGUMENT);
  CHECK(strstr(cw_last_error()->message, "parts must not be NULL") != NULL);
  CHECK(cw_merge_arrays(NULL, none, CW_PROTOBUF, arrays, 1, &answer) ==
        CW_INVALID_ARGUMENT);
}

static void TestRefusals(cw_handle* handle) {
  static Text message, request, text;
  static Sums one, other;
  Batch batch;
  cw_bytes bytes = {NULL, 0};
  cw_answer* answer = NULL;
  MakeSummedBatch(&batch, &message, kMethod);
  Correct(handle, &batch, &one, &text);
  MakeSummedBatch(&batch, &message, kOther);
  Correct(handle, &batch, &other, &text);
  /* Misuse. */
  CHECK(cw_merge(NULL, bytes, CW_JSON, &answer) == CW_INVALID_ARGUMENT);
  CHECK(strstr(cw_last_error()->message, "handle must not be NULL") != NULL);
  CHECK(cw_merge(handle, bytes, CW_JSON, NULL) == CW_INVALID_ARGUMENT);
  CHECK(strstr(cw_last_error()->message, "answer must not be NULL") != NULL);
  CheckRefused(handle, bytes, 2, "format must be CW_PROTOBUF or CW_JSON");
  bytes.size = 1;
  CheckRefused(handle, bytes, CW_PROTOBUF, "request.data must not be NULL");
  /* Bytes of another kind. */
  bytes.data = "\x0a\x05x";
  bytes.size = 3;
  CheckRefused(handle, bytes, CW_PROTOBUF,
               "the request is not a counterweight.v1.MergeSumsRequest: its "
               "bytes do not parse");
  CheckRefused(handle, bytes, CW_JSON,
               "the request is not the JSON form of a "
               "counterweight.v1.MergeSumsRequest");
  /* No part, and what is none. */
  bytes.size = 0;
  CheckRefused(handle, bytes, CW_PROTOBUF, "parts: is required");
  CHECK(Has(cw_last_error()->violations, "parts"));
  bytes.data = "{\"parts\": [{}]}";
  bytes.size = strlen("{\"parts\": [{}]}");
  CheckRefused(handle, bytes, CW_JSON, "parts[0].maxima: is none that");
  CHECK(Has(cw_last_error()->violations, "\"field\":\"parts[0].maxima\""));
  /* Parts of two methods, and another method. */
  AppendPart(&request, &one);
  AppendPart(&request, &other);
  CheckRefused(handle, BytesOf(&request), CW_PROTOBUF,
               "parts: are not of one method");
  request.size = 0;
  AppendPart(&request, &other);
  AppendText(&request, "\x12\x0d\x0a\x0b\x0a\x09token_tis");
  CheckRefused(handle, BytesOf(&request), CW_PROTOBUF,
               "method: is not the method of parts");
}

int main(void) {
  cw_options options = {0};
  cw_handle* handle = NULL;
  options.struct_size = sizeof(options);
  options.threads = 1;
  CHECK(cw_open(&options, &handle) == CW_OK);
  TestRunsHaveTheSumsOfCorrect(handle);
  TestPartsAreThoseOfTheirRows(handle);
  TestWrongPartsAreNamed(handle);
  TestAPartMayBeWhatABatchMayNot(handle);
  TestMergesParts(handle);
  TestMergesArrays(handle);
  TestRefusals(handle);
  cw_close(handle);
  return 0;
}
