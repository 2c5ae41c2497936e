// SPDX-License-Identifier: Apache-2.0
// Network namespaces of a test, which end with it, and threads that act inside one.
#ifndef FORGIVE_TESTS_DATAPLANE_NAMESPACES_H_
#define FORGIVE_TESTS_DATAPLANE_NAMESPACES_H_

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

namespace forgive {

// Moves the process into a fresh network namespace, which ends with it. To be called before any thread is started.
inline bool EnterFreshNamespace() {
  static const bool entered = unshare(CLONE_NEWNET) == 0 && std::system("ip link set lo up") == 0;
  return entered;
}

inline bool Shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// Waits until an interface that was set up carries frames: the kernel brings its queue into service a little later.
inline bool AwaitUp(const std::string& interface) {
  return Shell("for i in $(seq 3000); do ip link show dev " + interface +
               " | grep -q 'state UP' && exit 0; sleep 0.01; done; exit 1");
}

// A second namespace; what it holds ends with it.
class OtherNamespace {
 public:
  OtherNamespace() {
    std::thread([this] {
      if (unshare(CLONE_NEWNET) == 0) fd_ = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    }).join();
  }
  ~OtherNamespace() {
    if (fd_ >= 0) close(fd_);
  }
  OtherNamespace(const OtherNamespace&) = delete;
  OtherNamespace& operator=(const OtherNamespace&) = delete;

  bool valid() const { return fd_ >= 0; }
  // Runs `work` in a thread that is in the namespace.
  void Run(const std::function<void()>& work) const {
    std::thread([&] {
      if (setns(fd_, CLONE_NEWNET) == 0) work();
    }).join();
  }
  bool Shell(const std::string& command) const {
    bool done = false;
    Run([&] { done = forgive::Shell(command); });
    return done;
  }

 private:
  int fd_ = -1;
};

}  // namespace forgive

#endif  // FORGIVE_TESTS_DATAPLANE_NAMESPACES_H_
