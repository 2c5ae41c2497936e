// SPDX-License-Identifier: Apache-2.0
// Preloaded into a process: its time of day is ahead by the seconds that a file says just then; no other clock is.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

// The file STEPPED_CLOCK: 8 bytes, the seconds by which CLOCK_REALTIME is ahead.
static const volatile int64_t* ahead;

__attribute__((constructor)) static void Map(void) {
  const char* const name = getenv("STEPPED_CLOCK");
  const int file = name == NULL ? -1 : open(name, O_RDONLY | O_CLOEXEC);
  void* const memory = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    fputs("stepped_clock: STEPPED_CLOCK names no file of 8 bytes\n", stderr);
    _exit(2);
  }
  close(file);
  ahead = memory;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  const int is_time_of_day = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
  if (result == 0 && is_time_of_day && ahead != NULL) now->tv_sec += *ahead;
  return result;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  (void)zone;
  struct timespec precise;
  const int result = clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return result;
}

time_t time(time_t* seconds) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (seconds != NULL) *seconds = now.tv_sec;
  return now.tv_sec;
}
