/* Threads that end inside of a call: by pthread_exit in `place`, as Python ends
 * its daemon threads at exit, and by pthread_cancel. Neither ends the process,
 * nor the handle. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>

#include "check.h"

enum { kThreads = 3, kRounds = 50 };

typedef struct {
  cw_handle* handle;
  int returned;
} Call;

static void* Exit(void* context, int32_t role, int32_t dtype, size_t size) {
  (void)context, (void)role, (void)dtype, (void)size;
  pthread_exit(NULL);
}

/* The cancellation waits for the next cancellation point. */
static void* CancelCaller(void* context, int32_t role, int32_t dtype,
                          size_t size) {
  (void)context, (void)role, (void)dtype, (void)size;
  pthread_cancel(pthread_self());
  return NULL;
}

static void Correct(Call* call, cw_place place) {
  Batch batch;
  cw_answer* answer = NULL;
  MakeBatch(&batch);
  batch.request.place = place;
  CHECK(cw_correct(call->handle, &batch.request, &answer) == CW_OK);
  CheckAnswer(answer);
  cw_free(answer);
  call->returned = 1;
}

static void* ExitInside(void* call) {
  Correct((Call*)call, Exit);
  return NULL;
}

static void* CancelInside(void* call) {
  Correct((Call*)call, CancelCaller);
  pthread_testcancel();
  return NULL;
}

int main(void) {
  cw_options options = {0};
  Call call = {0};
  int i;
  options.struct_size = sizeof(options);
  options.threads = kThreads;
  CHECK(cw_open(&options, &call.handle) == CW_OK);
  for (i = 0; i < kRounds; ++i) {
    pthread_t thread;
    void* result = NULL;
    call.returned = 0;
    CHECK(pthread_create(&thread, NULL, ExitInside, &call) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(!call.returned);
    CHECK(pthread_create(&thread, NULL, CancelInside, &call) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(call.returned);
    CHECK(result == PTHREAD_CANCELED);
  }
  Correct(&call, NULL);
  cw_close(call.handle);
  return 0;
}
