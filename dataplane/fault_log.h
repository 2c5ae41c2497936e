// SPDX-License-Identifier: Apache-2.0
// The record of what a fault driver trimmed: lines written by a thread of its own, so that the engine never waits.
#ifndef FORGIVE_DATAPLANE_FAULT_LOG_H_
#define FORGIVE_DATAPLANE_FAULT_LOG_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "dataplane/ring.h"

namespace forgive {

struct TrimRecord {
  uint64_t connection_id = 0;
  uint32_t message = 0;
  uint32_t offset = 0;  // bytes, in the message
  uint32_t length = 0;  // bytes
};

// One line a trim: "trim CONNECTION_ID MESSAGE OFFSET LENGTH", the id as 16 hexadecimal digits, the rest decimal.
// Lines reach the file some 10 ms after the trim, where the machine lets the thread run, and at destruction.
class FaultLog {
 public:
  // Opens PATH.PID, emptied by the first log of the process. nullptr: *error says why.
  static std::shared_ptr<FaultLog> Open(const std::string& path, std::string* error);
  ~FaultLog();
  FaultLog(const FaultLog&) = delete;
  FaultLog& operator=(const FaultLog&) = delete;

  // From one thread. False: no room; a trim that cannot be recorded must not happen.
  bool Add(const TrimRecord& record) { return ring_.Push(record); }
  // From any thread but the one that adds: waits, two seconds at most, until what was added before is in the file.
  void Flush() const;

 private:
  explicit FaultLog(int fd);
  void Run();
  void Drain();

  int fd_;
  SpscRing<TrimRecord> ring_{1 << 16};
  std::string text_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> drained_{0};  // times that the ring was seen empty and all of it written
  std::thread thread_;
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_FAULT_LOG_H_
