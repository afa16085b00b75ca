// Symbols that g++'s libstdc++.a or Debian's archives use and that glibc 2.28
// lacks.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

// Returns the real time at which `end` of another clock is. A clock that is set
// meanwhile changes a wait for it, as in any program of glibc 2.28.
static struct timespec RealTime(clockid_t clock, const struct timespec* end) {
  struct timespec now, real;
  long long wait, at;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &real);
  wait = (end->tv_sec - now.tv_sec) * 1000000000LL + end->tv_nsec - now.tv_nsec;
  if (wait < 0) wait = 0;
  at = real.tv_nsec + wait;
  real.tv_sec += at / 1000000000LL;
  real.tv_nsec = at % 1000000000LL;
  return real;
}

// Since glibc 2.30; std::condition_variable::wait_for.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           clockid_t clock, const struct timespec* end) {
  struct timespec real = clock == CLOCK_REALTIME ? *end : RealTime(clock, end);
  return pthread_cond_timedwait(condition, mutex, &real);
}

// Since glibc 2.30; abseil.
int sem_clockwait(sem_t* semaphore, clockid_t clock,
                  const struct timespec* end) {
  struct timespec real = clock == CLOCK_REALTIME ? *end : RealTime(clock, end);
  return sem_timedwait(semaphore, &real);
}

// Since glibc 2.38, whose headers give these names to the functions of C2X,
// which read binary numbers where the base is 0 or 2. Nothing linked has any.
long __isoc23_strtol(const char* text, char** end, int base) {
  return strtol(text, end, base);
}

long long __isoc23_strtoll(const char* text, char** end, int base) {
  return strtoll(text, end, base);
}

unsigned long __isoc23_strtoul(const char* text, char** end, int base) {
  return strtoul(text, end, base);
}

unsigned long long __isoc23_strtoull(const char* text, char** end, int base) {
  return strtoull(text, end, base);
}

int __isoc23_sscanf(const char* text, const char* format, ...) {
  va_list arguments;
  int count;
  va_start(arguments, format);
  count = vsscanf(text, format, arguments);
  va_end(arguments);
  return count;
}

// Since glibc 2.38; libevent.
size_t strlcpy(char* to, const char* from, size_t size) {
  const size_t length = strlen(from);
  if (size > 0) {
    const size_t copied = length < size ? length : size - 1;
    memcpy(to, from, copied);
    to[copied] = 0;
  }
  return length;
}

// g++'s code reads a copy of environ in the program, which the loader fills in
// before glibc has the environment, unless the linker knows glibc's aliases.
__attribute__((constructor)) static void SetEnvironment(int argc, char** argv,
                                                        char** environment) {
  (void)argc, (void)argv;
  environ = environment;
}
