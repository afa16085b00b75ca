/* Answers: numbers that are known, and where they are written. */
#include "check.h"

typedef struct {
  float weights[6];
  uint8_t keep_mask[6];
  int calls;
} Places;

enum { kWeightsRole = 16, kKeepMaskRole = 17, kF32 = 1, kU8 = 4 };

static void* Place(void* context, int32_t role, int32_t dtype, size_t size) {
  Places* const places = (Places*)context;
  ++places->calls;
  if (role == kWeightsRole && dtype == kF32 &&
      size == sizeof(places->weights)) {
    return places->weights;
  }
  if (role == kKeepMaskRole && dtype == kU8 &&
      size == sizeof(places->keep_mask)) {
    return places->keep_mask;
  }
  return NULL;
}

static void* PlaceNothing(void* context, int32_t role, int32_t dtype,
                          size_t size) {
  (void)context, (void)role, (void)dtype, (void)size;
  return NULL;
}

static void TestMemoryOfTheLibrary(cw_handle* handle) {
  Batch batch;
  cw_answer* answer = NULL;
  MakeBatch(&batch);
  CHECK(cw_correct(handle, &batch.request, &answer) == CW_OK);
  CHECK(cw_last_error()->code == CW_OK);
  CheckAnswer(answer);
  CHECK(Has(answer->message, "\"requestId\":\"a\""));
  CHECK(Has(answer->message, "\"backend\":\"cpu\""));
  CHECK(Has(answer->message, "\"numericsVersion\":3"));
  cw_free(answer);
  batch.request.place = PlaceNothing;
  CHECK(cw_correct(handle, &batch.request, &answer) == CW_OK);
  CheckAnswer(answer);
  cw_free(answer);
}

/* Numbers that JSON lacks, in another system's block. */
static void TestSpelledNumbers(cw_handle* handle) {
  static const float kWeights[6] = {1.0f, 4.0f, 0.0f, 0.5f, 1.0f, 2.0f};
  Batch batch;
  cw_answer* answer = NULL;
  char text[1024];
  const char* const threshold = "{\"$numberDouble\": \"%s\"}}}}}";
  const char* const format =
      "%.*s{\"dialect\": {\"system\": \"verl\", \"block\": {"
      "\"rollout_is\": \"token\", \"rollout_is_threshold\": ";
  const int head = (int)(strstr(kTokenTis, "{\"preset\"") - kTokenTis);
  const size_t size =
      (size_t)snprintf(text, sizeof(text), format, head, kTokenTis);
  const float* weights;
  int i;
  MakeBatch(&batch);
  batch.request.message.data = text;
  snprintf(text + size, sizeof(text) - size, threshold, "Infinity");
  batch.request.message.size = strlen(text);
  CHECK(cw_correct(handle, &batch.request, &answer) == CW_OK);
  weights = (const float*)answer->tensors[0].data;
  for (i = 0; i < 6; ++i) CHECK(fabsf(weights[i] - kWeights[i]) < 1e-5f);
  cw_free(answer);
  snprintf(text + size, sizeof(text) - size, threshold, "NaN");
  batch.request.message.size = strlen(text);
  CHECK(cw_correct(handle, &batch.request, &answer) == CW_INVALID_ARGUMENT);
  CHECK(strstr(cw_last_error()->message, "is not a number (NaN)") != NULL);
  snprintf(text + size, sizeof(text) - size, threshold, "2");
  batch.request.message.size = strlen(text);
  CHECK(cw_correct(handle, &batch.request, &answer) == CW_INVALID_ARGUMENT);
  CHECK(strstr(cw_last_error()->message, "struct") != NULL);
}

static void TestMemoryOfTheCaller(cw_handle* handle) {
  Batch batch;
  Places places = {{0}, {0}, 0};
  cw_answer* answer = NULL;
  MakeBatch(&batch);
  batch.request.place = Place;
  batch.request.context = &places;
  CHECK(cw_correct(handle, &batch.request, &answer) == CW_OK);
  CHECK(places.calls == 2);
  CHECK(answer->tensors[0].data == places.weights);
  CHECK(answer->tensors[1].data == places.keep_mask);
  CheckAnswer(answer);
  cw_free(answer);
}

/* One protobuf request: layout {padded {0, 0}}, an empty mask, two log-probs,
 * preset token_tis. */
static void TestBytes(cw_handle* handle) {
  static const char kMessage[] =
      "\x1a\x02\x0a\x00"
      "\x22\x04\x08\x01\x10\x01"
      "\x22\x04\x08\x02\x10\x01"
      "\x22\x04\x08\x05\x10\x04"
      "\x2a\x0d\x0a\x0b\x0a\x09token_tis";
  Batch batch;
  cw_answer* answer = NULL;
  MakeBatch(&batch);
  batch.request.format = CW_PROTOBUF;
  batch.request.message.data = kMessage;
  batch.request.message.size = sizeof(kMessage) - 1;
  memset(batch.tensors, 0, sizeof(batch.tensors));
  CHECK(cw_correct(handle, &batch.request, &answer) == CW_OK);
  CHECK(answer->num_tensors == 2);
  CHECK(answer->tensors[0].size == 0);
  /* CorrectResponse.backend. */
  CHECK(Has(answer->message,
            "\x42\x03"
            "cpu"));
  cw_free(answer);
}

static void TestValidate(cw_handle* handle) {
  Batch batch;
  cw_answer* answer = NULL;
  MakeBatch(&batch);
  batch.request.tensors = NULL;
  batch.request.num_tensors = 0;
  CHECK(cw_validate(handle, &batch.request, &answer) == CW_OK);
  CHECK(Has(answer->message, "TENSOR_ROLE_WEIGHTS"));
  CHECK(answer->num_tensors == 0);
  cw_free(answer);
}

static const char kWithoutMetrics[] =
    "{\"layout\": {\"padded\": {\"numSequences\": 2, \"length\": 3}}, "
    "\"tensors\": ["
    "{\"role\": \"TENSOR_ROLE_ROLLOUT_LOG_PROBS\", \"dtype\": \"D_TYPE_F32\"},"
    "{\"role\": \"TENSOR_ROLE_OLD_LOG_PROBS\", \"dtype\": \"D_TYPE_F32\"},"
    "{\"role\": \"TENSOR_ROLE_RESPONSE_MASK\", \"dtype\": \"D_TYPE_U8\"}],"
    "\"omitMetrics\": true, "
    "\"method\": {\"preset\": {\"name\": \"token_tis\"}}}";

static void TestSums(cw_handle* handle) {
  Batch batch;
  cw_answer* answer = NULL;
  cw_bytes sums = {NULL, 1};
  MakeBatch(&batch);
  CHECK(cw_correct(handle, &batch.request, &answer) == CW_OK);
  CHECK(cw_sums(answer, CW_JSON, &sums) == CW_OK);
  CHECK(Has(sums, "\"requestId\":\"a\""));
  CHECK(Has(sums, "\"tokens\":\"5\""));
  CHECK(Has(sums, "\"max\":2"));
  /* PublishRequest.request_id. */
  CHECK(cw_sums(answer, CW_PROTOBUF, &sums) == CW_OK);
  CHECK(sums.size > 3 && memcmp(sums.data, "\x0a\x01\x61", 3) == 0);
  CHECK(cw_sums(answer, 2, &sums) == CW_INVALID_ARGUMENT);
  CHECK(sums.size == 0);
  CHECK(cw_sums(answer, CW_JSON, NULL) == CW_INVALID_ARGUMENT);
  CHECK(cw_sums(NULL, CW_JSON, &sums) == CW_INVALID_ARGUMENT);
  cw_free(answer);
  CHECK(cw_validate(handle, &batch.request, &answer) == CW_OK);
  CHECK(cw_sums(answer, CW_JSON, &sums) == CW_OK);
  CHECK(sums.size == 0);
  cw_free(answer);
  batch.request.message.data = kWithoutMetrics;
  batch.request.message.size = sizeof(kWithoutMetrics) - 1;
  CHECK(cw_correct(handle, &batch.request, &answer) == CW_OK);
  CHECK(cw_sums(answer, CW_JSON, &sums) == CW_OK);
  CHECK(sums.size == 0);
  cw_free(answer);
}

static void TestTables(cw_handle* handle) {
  cw_answer* answer = NULL;
  CHECK(cw_list_methods(handle, CW_JSON, &answer) == CW_OK);
  CHECK(Has(answer->message, "\"token_tis\""));
  cw_free(answer);
  CHECK(cw_server_info(handle, CW_JSON, &answer) == CW_OK);
  CHECK(Has(answer->message, "\"threads\":3"));
  CHECK(Has(answer->message, "\"verl\""));
  CHECK(Has(answer->message, cw_version()));
  cw_free(answer);
}

int main(void) {
  cw_options options = {0};
  cw_handle* handle = NULL;
  options.struct_size = sizeof(options);
  options.threads = 3;
  CHECK(cw_abi_version() == CW_ABI_VERSION);
  CHECK(cw_open(&options, &handle) == CW_OK);
  TestTables(handle);
  TestMemoryOfTheLibrary(handle);
  TestSpelledNumbers(handle);
  TestMemoryOfTheCaller(handle);
  TestBytes(handle);
  TestValidate(handle);
  TestSums(handle);
  cw_close(handle);
  CHECK(cw_open(NULL, &handle) == CW_OK);
  TestMemoryOfTheLibrary(handle);
  TestSpelledNumbers(handle);
  cw_close(handle);
  cw_close(NULL);
  cw_free(NULL);
  return 0;
}
