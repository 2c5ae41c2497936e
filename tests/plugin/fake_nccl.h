// SPDX-License-Identifier: Apache-2.0
// A fake NCCL: loads the plugin as NCCL does, any of its API versions, and calls it in the proxy's order.
#ifndef FORGIVE_TESTS_PLUGIN_FAKE_NCCL_H_
#define FORGIVE_TESTS_PLUGIN_FAKE_NCCL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugin/forgive.h"
#include "plugin/nccl_abi.h"

namespace forgive::testing {

// Runs `body` in a child process with these environment variables, so that each test loads the plugin anew. A test
// failure in the child is printed there and makes the parent's expectation fail. Returns the wait status.
// What the child says on standard error goes to *said, or nowhere: errors that a test provokes must not bury the one
// that it finds.
int RunInChild(const std::vector<std::pair<std::string, std::string>>& environment,
               const std::function<void()>& body, std::string* said = nullptr);
// The same, and the child must end without a failure; if it does not, what it said is shown.
void ExpectInChild(const std::vector<std::pair<std::string, std::string>>& environment,
                   const std::function<void()>& body);

// Whether this thread is in NCCL's logger: what is allocated there is not the plugin's.
bool InLogger();
// What the plugin logged through NCCL's logger in this process.
std::vector<std::string> LogLines();
bool LogContains(const std::string& text);
void ClearLog();

// One communicator as the fake NCCL has it: what v10 and later tell a plugin about it.
struct NcclCommunicator {
  uint64_t comm_id = 1;
  int traffic_class = nccl::kNoTrafficClass;
  nccl::ProfilerCallback profiler = nullptr;
  void* context = nullptr;           // from init, v11 on
  void* profiler_handle = nullptr;   // given to the next data calls, v10 on
  bool optional_completion = false;  // NCCL can do without the next receives' completion, v9 on
};

struct DeviceProperties {
  std::string name;
  uint64_t guid = 0;
  int pointer_support = 0;
  int speed_mbps = 0;
  int max_comms = 0;
  int max_receives = 0;
  int merged_devices = 0;  // v9 on
  size_t max_bytes = 0;    // v9 on: the smaller of both
};

// The table of one API version behind one face.
struct Net {
  int version = 0;
  const char* name = nullptr;
  std::shared_ptr<NcclCommunicator> communicator;
  std::function<int()> init;
  std::function<int()> finalize;                               // v11 on; else empty
  std::function<int(const nccl::Attributes*)> set_attributes;  // v11 on; else empty
  std::function<int(int*)> devices;
  std::function<int(int, DeviceProperties*)> properties;
  std::function<int(int, void*, void**)> listen;
  std::function<int(int, void*, void**)> connect;
  std::function<int(void*, void**)> accept;
  std::function<int(void*, void*, size_t, int, void**)> register_memory;
  std::function<int(void*, void*, size_t, int, uint64_t, int, void**)> register_dma_buffer;
  std::function<int(void*, void*)> deregister_memory;
  std::function<int(void*, void*, int, int, void*, void**)> send;
  std::function<int(void*, int, void**, int*, int*, void**, void**)> receive;
  std::function<int(void*, int, void**, int*, void**, void**)> flush;
  std::function<int(void*, int*, int*)> test;
  std::function<int(void*)> close_send;
  std::function<int(void*)> close_receive;
  std::function<int(void*)> close_listen;
};

// Every version of the table, from the lowest.
inline constexpr int kVersions[] = {6, 7, 8, 9, 10, 11, 12};

// The library, as NCCL opens it.
class Library {
 public:
  Library();
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  void* Symbol(const char* name) const;
  // A communicator of NCCL's: its own context from v11 on.
  Net Table(int version, uint64_t comm_id = 1, int traffic_class = nccl::kNoTrafficClass) const;

  template <typename Function>
  Function* Get(const char* name) const {
    return reinterpret_cast<Function*>(Symbol(name));
  }

 private:
  void* handle_ = nullptr;
};

// Two ends of a connection and a buffer registered on each.
struct Pair {
  void* send_comm = nullptr;
  void* receive_comm = nullptr;
  std::vector<uint8_t> source;
  std::vector<uint8_t> destination;
  void* source_handle = nullptr;
  void* destination_handle = nullptr;
};

// Listens on device 0, connects to it and accepts, by polling; closes the listen communicator as NCCL does.
void Connect(const Net& net, void** send_comm, void** receive_comm);
Pair MakePair(const Net& net, size_t buffer_bytes);
void ClosePair(const Net& net, Pair* pair);

// Polls until the request is done; returns test's result, and the size in *size. Fails the test after a minute.
int Wait(const Net& net, void* request, int* size = nullptr);
// Posts until a request is given; returns the call's result.
int Send(const Net& net, const Pair& pair, size_t offset, int bytes, void** request);
int Receive(const Net& net, Pair* pair, size_t offset, int bytes, void** request);

// Calls `poll` until it returns true; false after `seconds`.
bool PollUntil(const std::function<bool()>& poll, int seconds = 60);

void FillPattern(std::vector<uint8_t>* bytes, uint64_t seed);

}  // namespace forgive::testing

#endif  // FORGIVE_TESTS_PLUGIN_FAKE_NCCL_H_
