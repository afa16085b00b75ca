/* Threads and processes: none before the first correction, and children that
 * use what their parent opened. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { kThreads = 4, kInFlight = 4, kForks = 20 };

static int CountThreads(void) {
  DIR* const tasks = opendir("/proc/self/task");
  const struct dirent* task;
  int count = 0;
  CHECK(tasks != NULL);
  while ((task = readdir(tasks)) != NULL) count += task->d_name[0] != '.';
  closedir(tasks);
  return count;
}

/* A thread that was joined may be listed for a moment. */
static void CheckThreads(int count) {
  const struct timespec pause = {0, 1000000};
  int i;
  for (i = 0; i < 10000 && CountThreads() != count; ++i) {
    nanosleep(&pause, NULL);
  }
  CHECK(CountThreads() == count);
}

static int Correct(cw_handle* handle) {
  Batch batch;
  cw_answer* answer = NULL;
  int code;
  MakeBatch(&batch);
  code = cw_correct(handle, &batch.request, &answer);
  if (code == CW_OK) CheckAnswer(answer);
  cw_free(answer);
  return code;
}

/* The exit status of a child that uses the handle; -1 if it hangs. */
static int InChild(cw_handle* handle) {
  const pid_t child = fork();
  int status = 0;
  CHECK(child >= 0);
  if (child == 0) {
    int code;
    alarm(20);
    code = Correct(handle);
    if (code == CW_OK) {
      if (CountThreads() != kThreads) _exit(100);
      cw_close(handle);
    }
    _exit(code);
  }
  CHECK(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static volatile int32_t done;

static void* Work(void* handle) {
  while (!done) CHECK(Correct((cw_handle*)handle) == CW_OK);
  return NULL;
}

int main(void) {
  cw_options options = {0};
  cw_handle* handle = NULL;
  pthread_t workers[kInFlight];
  int i;
  options.struct_size = sizeof(options);
  options.threads = kThreads;
  CHECK(cw_open(&options, &handle) == CW_OK);
  CheckThreads(1);
  /* Opened before, first used in the child. */
  CHECK(InChild(handle) == CW_OK);
  CHECK(Correct(handle) == CW_OK);
  CheckThreads(kThreads);
  /* Used before. */
  CHECK(InChild(handle) == CW_OK);
  CHECK(Correct(handle) == CW_OK);
  /* Forked while other threads are inside: it works or says why not. */
  for (i = 0; i < kInFlight; ++i) {
    CHECK(pthread_create(&workers[i], NULL, Work, handle) == 0);
  }
  for (i = 0; i < kForks; ++i) {
    const int code = InChild(handle);
    CHECK(code == CW_OK || code == CW_FAILED_PRECONDITION);
  }
  done = 1;
  for (i = 0; i < kInFlight; ++i) CHECK(pthread_join(workers[i], NULL) == 0);
  cw_close(handle);
  CheckThreads(1);
  return 0;
}
