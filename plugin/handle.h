// SPDX-License-Identifier: Apache-2.0
// What listen writes and NCCL carries to the peer, out of band: where the listener is, and its ticket.
#ifndef FORGIVE_PLUGIN_HANDLE_H_
#define FORGIVE_PLUGIN_HANDLE_H_

#include <array>
#include <cstdint>

#include "transport/config.h"
#include "transport/datagram.h"
#include "transport/requests.h"

namespace forgive {

// Of a listener with one rail it is written as before there were rails (version 1), else as version 2: a peer that
// knows no rails says that it is of another version, and does not connect to one of them.
struct Handle {
  uint32_t rails = 1;
  std::array<Address, kMaxRails> addresses{};  // by rail; link-local ones of version 2 without their scope
  ListenTicket ticket;
  uint64_t connecting = 0;  // the connecting side's own: names a handshake under way; 0: none
};

enum class HandleResult : uint8_t { kOk, kNotOurs, kOtherVersion };

// `bytes` are NCCL's, nccl::kHandleBytes.
void WriteHandle(const Handle& handle, void* bytes);
HandleResult ReadHandle(const void* bytes, Handle* out);

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_HANDLE_H_
