/* SPDX-License-Identifier: Apache-2.0 */
/* The harness's all-reduce as a small C library, for programs that bring their own data (testbed/train). */
#ifndef FORGIVE_TESTBED_PERF_COLLECTIVE_API_H_
#define FORGIVE_TESTBED_PERF_COLLECTIVE_API_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FORGIVE_COLLECTIVE_EXPORT __attribute__((visibility("default")))

typedef struct forgive_collective forgive_collective_t;

/* Loads the plugin (a file, "tcp" or "tcp-threaded") and connects all ranks; every rank calls it alike. `algorithm`:
 * "ring" or "direct". `rendezvous`: HOST:PORT where rank 0 listens. timeout_s: the longest wait without progress.
 * NULL: forgive_collective_error says why, in one line. One at a time in a process. */
FORGIVE_COLLECTIVE_EXPORT forgive_collective_t* forgive_collective_create(const char* plugin, const char* algorithm,
                                                                          int rank, int ranks, const char* rendezvous,
                                                                          int timeout_s);
/* Sums `count` float32 elements over all ranks, in place, and waits for the result. 0, or -1 after which nothing but
 * destroy may be called: the network, the plugin or another rank failed. */
FORGIVE_COLLECTIVE_EXPORT int forgive_collective_all_reduce(forgive_collective_t* collective, float* data,
                                                            int64_t count);
/* The bytes that this rank receives in an all-reduce of `count` elements, and those of them in the reduce-scatter
 * phase. */
FORGIVE_COLLECTIVE_EXPORT int64_t forgive_collective_received_bytes(const forgive_collective_t* collective,
                                                                    int64_t count, int only_reduce);
/* Closes everything, requests in flight or not. */
FORGIVE_COLLECTIVE_EXPORT void forgive_collective_destroy(forgive_collective_t* collective);
/* This thread's last error. */
FORGIVE_COLLECTIVE_EXPORT const char* forgive_collective_error(void);

#ifdef __cplusplus
}
#endif

#endif /* FORGIVE_TESTBED_PERF_COLLECTIVE_API_H_ */
