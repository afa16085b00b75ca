/* One clear error for each wrong input. */
#include <unistd.h>

#include "check.h"

/* That the request is refused with these words, and no answer. */
static void CheckRefused(cw_handle* handle, const cw_request* request, int code,
                         const char* words) {
  cw_answer* answer = (cw_answer*)handle;
  CHECK(cw_correct(handle, request, &answer) == code);
  CHECK(answer == NULL);
  CHECK(cw_last_error()->code == code);
  CHECK(strstr(cw_last_error()->message, words) != NULL);
}

static void TestOptions(void) {
  cw_options options = {0};
  cw_handle* handle = (cw_handle*)&options;
  CHECK(cw_open(&options, &handle) == CW_INVALID_ARGUMENT);
  CHECK(handle == NULL);
  CHECK(strstr(cw_last_error()->message, "struct_size") != NULL);
  options.struct_size = sizeof(options);
  options.backend = "tpu";
  options.threads = 1025;
  options.max_tokens = -1;
  CHECK(cw_open(&options, &handle) == CW_INVALID_ARGUMENT);
  CHECK(strstr(cw_last_error()->message, "3 violations: backend: ") != NULL);
  CHECK(strstr(cw_last_error()->message, "; threads: ") != NULL);
  CHECK(strstr(cw_last_error()->message, "; max_tokens: ") != NULL);
}

static void TestRequests(cw_handle* handle) {
  static const uint8_t kNoMask[6] = {1, 1, 0, 1, 7, 1};
  static const char kTypo[] = "{\"layuot\": {}}";
  Batch batch;
  MakeBatch(&batch);
  batch.tensors[2].data = kNoMask;
  CheckRefused(handle, &batch.request, CW_INVALID_ARGUMENT,
               "tensors[2].data: response_mask must hold 0 and 1 only, but "
               "position 4 holds 7");
  CHECK(Has(cw_last_error()->violations,
            "\"fieldViolations\":[{\"field\":"
            "\"tensors[2].data\""));
  MakeBatch(&batch);
  batch.tensors[0].size = 20;
  CheckRefused(handle, &batch.request, CW_INVALID_ARGUMENT,
               "tensors[0].data: rollout_log_probs has 20 bytes; the layout's "
               "6 positions need 24");
  MakeBatch(&batch);
  batch.request.num_tensors = 2;
  CheckRefused(handle, &batch.request, CW_INVALID_ARGUMENT,
               "tensors[2]: response_mask was given no bytes by address");
  MakeBatch(&batch);
  batch.old_log_probs[4] = NAN;
  CheckRefused(handle, &batch.request, CW_INVALID_ARGUMENT,
               "old_log_probs is NaN or infinite at sequence 1, token 1");
  MakeBatch(&batch);
  batch.tensors[1].data = (const char*)batch.old_log_probs + 1;
  CheckRefused(handle, &batch.request, CW_INVALID_ARGUMENT,
               "tensors[1].data: lies at an address");
  MakeBatch(&batch);
  batch.request.message.data = kTypo;
  batch.request.message.size = sizeof(kTypo) - 1;
  CheckRefused(handle, &batch.request, CW_INVALID_ARGUMENT, "layuot");
  batch.request.format = CW_PROTOBUF;
  batch.request.message.data = "\x0a\x05x"; /* a string cut short */
  batch.request.message.size = 3;
  CheckRefused(handle, &batch.request, CW_INVALID_ARGUMENT, "do not parse");
  batch.request.format = 2;
  CheckRefused(handle, &batch.request, CW_INVALID_ARGUMENT, "format");
  MakeBatch(&batch);
  batch.request.struct_size = 8;
  CheckRefused(handle, &batch.request, CW_INVALID_ARGUMENT, "struct_size");
  MakeBatch(&batch);
  batch.request.timeout_seconds = NAN;
  CheckRefused(handle, &batch.request, CW_INVALID_ARGUMENT, "timeout_seconds");
  CHECK(cw_correct(NULL, &batch.request, NULL) == CW_INVALID_ARGUMENT);
  CHECK(cw_correct(handle, NULL, NULL) == CW_INVALID_ARGUMENT);
}

static void* PlaceOnInput(void* context, int32_t role, int32_t dtype,
                          size_t size) {
  (void)role, (void)dtype, (void)size;
  return context;
}

static void TestPlaces(cw_handle* handle) {
  float memory[8];
  Batch batch;
  MakeBatch(&batch);
  batch.request.place = PlaceOnInput;
  batch.request.context = batch.old_log_probs;
  CheckRefused(handle, &batch.request, CW_INVALID_ARGUMENT,
               "outputs[weights]: was placed where an input lies");
  batch.request.context = memory;
  CheckRefused(handle, &batch.request, CW_INVALID_ARGUMENT,
               "outputs[keep_mask]: was placed where another output lies");
  batch.request.context = (char*)memory + 2;
  CheckRefused(handle, &batch.request, CW_INVALID_ARGUMENT,
               "outputs[weights]: was placed at an address");
}

static void TestEnds(cw_handle* handle) {
  const volatile int32_t stop = 1;
  Batch batch;
  MakeBatch(&batch);
  batch.request.stop = &stop;
  CheckRefused(handle, &batch.request, CW_CANCELLED, "cancelled");
  MakeBatch(&batch);
  batch.request.timeout_seconds = 1e-9;
  CheckRefused(handle, &batch.request, CW_DEADLINE_EXCEEDED, "deadline");
}

/* A request_id that is not UTF-8. */
static void TestNothingIsPrinted(cw_handle* handle) {
  static const char kWrongText[] = "\x0a\x02\xff\xfe";
  const int own = dup(STDERR_FILENO);
  FILE* const printed = tmpfile();
  Batch batch;
  MakeBatch(&batch);
  batch.request.format = CW_PROTOBUF;
  batch.request.message.data = kWrongText;
  batch.request.message.size = sizeof(kWrongText) - 1;
  CHECK(printed != NULL && dup2(fileno(printed), STDERR_FILENO) >= 0);
  CheckRefused(handle, &batch.request, CW_INVALID_ARGUMENT, "");
  CHECK(dup2(own, STDERR_FILENO) >= 0);
  CHECK(fseek(printed, 0, SEEK_END) == 0 && ftell(printed) == 0);
  fclose(printed);
  close(own);
}

int main(void) {
  cw_handle* handle = NULL;
  TestOptions();
  CHECK(cw_open(NULL, &handle) == CW_OK);
  TestRequests(handle);
  TestPlaces(handle);
  TestEnds(handle);
  TestNothingIsPrinted(handle);
  cw_close(handle);
  return 0;
}
