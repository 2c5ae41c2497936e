// SPDX-License-Identifier: Apache-2.0
// What the two halves of the fake plugin tell each other.
#ifndef FORGIVE_TESTS_PERF_FAKE_NET_H_
#define FORGIVE_TESTS_PERF_FAKE_NET_H_

#include <cstdint>

namespace fake {

// What is settled about a message when its receive is posted.
struct PostFacts {
  bool forgivable = false;
  std::uint64_t step = 0;
  std::uint32_t contributions = 1;
};

// One receive communicator's account, kept by the forgiving half.
struct ReceiveAccount {
  std::uint64_t connection_id = 0;
  std::uint32_t messages = 0;       // posted since it was made
  std::uint64_t epoch = 0;          // the step to which step_messages counts
  std::uint32_t step_messages = 0;  // posted in the step
};

// At an accepted post. `quarter`: four times the posted size is the size of the registered buffer.
PostFacts OnPost(ReceiveAccount& account, bool quarter);
// At a message's arrival, before it is reported: may forgive some of it.
void OnArrival(const void* comm, const ReceiveAccount& account, const PostFacts& facts, std::uint32_t message,
               char* data, std::uint32_t bytes);
// Receives posted in the process, not complete.
void CountPosted(int change);

}  // namespace fake

#endif  // FORGIVE_TESTS_PERF_FAKE_NET_H_
