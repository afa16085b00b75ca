// Symbols that g++ 12's libstdc++.a or Debian's archives use and that
// glibc 2.28 lacks.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/random.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

// Since glibc 2.36; libevent.
void arc4random_buf(void* buffer, size_t size) {
  char* next = buffer;
  while (size > 0) {
    const ssize_t got = getrandom(next, size, 0);
    if (got < 0) continue;
    next += got;
    size -= (size_t)got;
  }
}

// Since glibc 2.36; std::random_device and libevent.
uint32_t arc4random(void) {
  uint32_t value;
  while (getrandom(&value, sizeof(value), 0) != sizeof(value)) {
  }
  return value;
}

// Since glibc 2.32; std::shared_ptr. 0 means that there may be threads.
char __libc_single_threaded = 0;

// Since glibc 2.33; server/base/heap.cc. The older function counts with int: above
// 2 GiB its counts wrap.
struct mallinfo2 mallinfo2(void) {
  struct mallinfo2 wide;
  struct mallinfo narrow;
  struct mallinfo2 (*own)(void) =
      (struct mallinfo2(*)(void))dlsym(RTLD_NEXT, "mallinfo2");
  if (own != NULL) return own();
  narrow = mallinfo();
  for (int i = 0; i < 10; ++i) {
    ((size_t*)&wide)[i] = ((const unsigned int*)&narrow)[i];
  }
  return wide;
}

// Since glibc 2.30; std::condition_variable::wait_for. A clock that is set
// meanwhile changes the wait, as in any program of glibc 2.28.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           clockid_t clock, const struct timespec* end) {
  struct timespec now, real;
  long long wait, at;
  if (clock == CLOCK_REALTIME) {
    return pthread_cond_timedwait(condition, mutex, end);
  }
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &real);
  wait = (end->tv_sec - now.tv_sec) * 1000000000LL + end->tv_nsec - now.tv_nsec;
  if (wait < 0) wait = 0;
  at = real.tv_nsec + wait;
  real.tv_sec += at / 1000000000LL;
  real.tv_nsec = at % 1000000000LL;
  return pthread_cond_timedwait(condition, mutex, &real);
}

// g++'s code reads a copy of environ in the program, which the loader fills in
// before glibc has the environment, unless the linker knows glibc's aliases.
__attribute__((constructor)) static void SetEnvironment(int argc, char** argv,
                                                        char** environment) {
  (void)argc, (void)argv;
  environ = environment;
}
