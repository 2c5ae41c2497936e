// SPDX-License-Identifier: Apache-2.0
// The longest call of each kind and version in one run of a test program, over all the processes of its tests.
#ifndef FORGIVE_TESTS_PLUGIN_CALL_RECORD_H_
#define FORGIVE_TESTS_PLUGIN_CALL_RECORD_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace forgive::testing {

// The calls of a table, by NCCL's names; "connect again" asks for the end of a handshake that connect began.
inline constexpr const char* kCallKinds[] = {
    "devices", "getProperties", "listen",    "connect",     "connect again", "accept",
    "regMr",   "regMrDmaBuf",   "deregMr",   "isend",       "irecv",         "iflush",
    "test",    "closeSend",     "closeRecv", "closeListen", "setNetAttr",    "finalize"};

// Notes one call's own time. `kind` is one of kCallKinds; a version that is none of the table's is left out.
void RecordCall(int version, const char* kind, uint64_t own_ns);

// A line a kind: the longest call of each version in microseconds, and how many of all calls took longer than
// CallClock::kBoundNs. To be shown, never judged: what a test judges is CallClock's.
std::string DescribeCalls();

// Makes the record before the first test starts a process, and shows it after the last one.
class ShowsCalls : public ::testing::Environment {
 public:
  ShowsCalls();
  void TearDown() override;
};

}  // namespace forgive::testing

#endif  // FORGIVE_TESTS_PLUGIN_CALL_RECORD_H_
