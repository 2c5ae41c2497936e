// SPDX-License-Identifier: Apache-2.0
// How a kernel driver hands a batch of messages to its socket.
#ifndef FORGIVE_DATAPLANE_MESSAGE_SENDER_H_
#define FORGIVE_DATAPLANE_MESSAGE_SENDER_H_

#include <sys/socket.h>

#include <span>

namespace forgive {

class MessageSender {
 public:
  virtual ~MessageSender() = default;
  // sendmmsg's contract with MSG_DONTWAIT: sends from the front, stops at the first refusal, never waits for room;
  // returns how many were sent, or -1 with the first one's errno. What the messages point to is free again then.
  virtual int Send(int fd, std::span<mmsghdr> messages) = 0;
};

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_MESSAGE_SENDER_H_
