// SPDX-License-Identifier: Apache-2.0
// Makes the kernel refuse a system call to this process from now on, as a container's seccomp profile does.
#ifndef FORGIVE_TESTS_DATAPLANE_REFUSE_CALL_H_
#define FORGIVE_TESTS_DATAPLANE_REFUSE_CALL_H_

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cstddef>
#include <cstdint>

namespace forgive {

// io_uring's calls, whose numbers are the same on every architecture.
inline constexpr int kUringSetupCall = 425;
inline constexpr int kUringEnterCall = 426;

// False: such filters are not permitted here.
inline bool RefuseCall(int call, int error_number) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error_number)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{4, program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

}  // namespace forgive

#endif  // FORGIVE_TESTS_DATAPLANE_REFUSE_CALL_H_
