/* Messages without a batch: runs that declare their method, with plans from
 * before and after, and advantages of groups. */
#include "check.h"

static cw_bytes BytesOf(const char* text) {
  cw_bytes bytes;
  bytes.data = text;
  bytes.size = strlen(text);
  return bytes;
}

static void Declare(cw_handle* handle, int run, const char* method,
                    int replaces) {
  cw_answer* answer = NULL;
  char text[256];
  snprintf(text, sizeof(text),
           "{\"labels\": {\"run\": \"r%d\"}, \"method\": %s}", run, method);
  CHECK(cw_declare_run(handle, BytesOf(text), CW_JSON, &answer) == CW_OK);
  CHECK(Has(answer->message, "\"method\":"));
  CHECK(Has(answer->message, "replaces") == replaces);
  cw_free(answer);
}

static void MakeRequest(Batch* batch, char* text, size_t size, int run) {
  MakeBatch(batch);
  snprintf(text, size, "{\"labels\": {\"run\": \"r%d\"}, %s", run,
           kTokenTis + 1);
  batch->request.message = BytesOf(text);
}

static int WarnsCorrect(cw_handle* handle, int run) {
  Batch batch;
  char text[1024];
  cw_answer* answer = NULL;
  int warns;
  MakeRequest(&batch, text, sizeof(text), run);
  CHECK(cw_correct(handle, &batch.request, &answer) == CW_OK);
  CheckAnswer(answer);
  warns = Has(answer->message, "this batch was corrected by token_tis");
  cw_free(answer);
  return warns;
}

static int WarnsPlan(cw_handle* handle, int run) {
  Batch batch;
  char text[1024];
  cw_plan* plan = NULL;
  cw_answer* answer = NULL;
  double numbers[256] = {0};
  int warns;
  MakeRequest(&batch, text, sizeof(text), run);
  CHECK(cw_prepare(handle, &batch.request, &plan) == CW_OK);
  CHECK(cw_signature_of(plan)->num_numbers <= 256);
  CHECK(cw_describe(plan, numbers, CW_JSON, &answer) == CW_OK);
  warns = Has(answer->message, "this batch was corrected by token_tis");
  cw_free(answer);
  cw_discard(plan);
  return warns;
}

static void TestWarns(cw_handle* handle) {
  CHECK(!WarnsCorrect(handle, 0) && !WarnsPlan(handle, 0));
  Declare(handle, 0, "{\"preset\": {\"name\": \"icepop\"}}", 0);
  CHECK(WarnsCorrect(handle, 0) && WarnsPlan(handle, 0));
  CHECK(!WarnsCorrect(handle, 1) && !WarnsPlan(handle, 1));
  /* Infinity as a block spells it, which is no bound. */
  Declare(handle, 0,
          "{\"dialect\": {\"system\": \"verl\", \"block\": {\"rollout_is\": "
          "\"token\", \"rollout_is_threshold\": "
          "{\"$numberDouble\": \"Infinity\"}}}}",
          1);
  CHECK(WarnsCorrect(handle, 0));
  Declare(handle, 0, "{\"preset\": {\"name\": \"token_tis\"}}", 1);
  CHECK(!WarnsCorrect(handle, 0) && !WarnsPlan(handle, 0));
}

static void TestForgetsTheOldest(cw_handle* handle) {
  int run;
  for (run = 100; run < 164; ++run) {
    Declare(handle, run, "{\"preset\": {\"name\": \"icepop\"}}", 0);
  }
  CHECK(WarnsCorrect(handle, 100));
  Declare(handle, 164, "{\"preset\": {\"name\": \"icepop\"}}", 0);
  CHECK(!WarnsCorrect(handle, 100));
  CHECK(WarnsCorrect(handle, 101) && WarnsCorrect(handle, 164));
}

static void TestRefuses(cw_handle* handle) {
  cw_answer* answer = (cw_answer*)handle;
  CHECK(cw_declare_run(handle, BytesOf("{}"), CW_JSON, &answer) ==
        CW_INVALID_ARGUMENT);
  CHECK(answer == NULL);
  CHECK(strstr(cw_last_error()->message, "labels.run") != NULL);
  CHECK(cw_declare_run(handle, BytesOf("\xff"), CW_PROTOBUF, &answer) ==
        CW_INVALID_ARGUMENT);
  CHECK(cw_declare_run(handle, BytesOf("{}"), 2, &answer) ==
        CW_INVALID_ARGUMENT);
  CHECK(cw_declare_run(NULL, BytesOf("{}"), CW_JSON, &answer) ==
        CW_INVALID_ARGUMENT);
  CHECK(cw_declare_run(handle, BytesOf("{}"), CW_JSON, NULL) ==
        CW_INVALID_ARGUMENT);
}

static void TestGroups(cw_handle* handle) {
  cw_answer* answer = NULL;
  CHECK(cw_group_advantages(
            handle,
            BytesOf("{\"baseline\": {\"estimator\": \"GROUP_ESTIMATOR_RLOO\"}, "
                    "\"rewards\": [100, 1, 3, \"NaN\"], "
                    "\"groupIds\": [7, 7, 7, \"-9223372036854775808\"], "
                    "\"keptTokens\": [0, 1, 1, 1]}"),
            CW_JSON, &answer) == CW_OK);
  CHECK(Has(answer->message, "\"advantages\":[0,-2,2,0]"));
  CHECK(Has(answer->message, "\"missing_rewards\":1"));
  CHECK(answer->num_tensors == 0);
  cw_free(answer);
}

static void TestGroupsRefuses(cw_handle* handle) {
  cw_answer* answer = (cw_answer*)handle;
  CHECK(cw_group_advantages(handle, BytesOf("{}"), CW_JSON, &answer) ==
        CW_INVALID_ARGUMENT);
  CHECK(answer == NULL);
  CHECK(strstr(cw_last_error()->message, "baseline.estimator") != NULL);
  CHECK(cw_group_advantages(handle, BytesOf("\xff"), CW_PROTOBUF, &answer) ==
        CW_INVALID_ARGUMENT);
  CHECK(cw_group_advantages(handle, BytesOf("{}"), 2, &answer) ==
        CW_INVALID_ARGUMENT);
  CHECK(cw_group_advantages(NULL, BytesOf("{}"), CW_JSON, &answer) ==
        CW_INVALID_ARGUMENT);
  CHECK(cw_group_advantages(handle, BytesOf("{}"), CW_JSON, NULL) ==
        CW_INVALID_ARGUMENT);
}

int main(void) {
  cw_handle* handle = NULL;
  CHECK(cw_open(NULL, &handle) == CW_OK);
  TestWarns(handle);
  TestRefuses(handle);
  TestGroups(handle);
  TestGroupsRefuses(handle);
  cw_close(handle);
  CHECK(cw_open(NULL, &handle) == CW_OK);
  TestForgetsTheOldest(handle);
  cw_close(handle);
  return 0;
}
