// SPDX-License-Identifier: Apache-2.0
// Short messages that arrived before their receive was posted, and wait for it.
#ifndef FORGIVE_TRANSPORT_EARLY_MESSAGES_H_
#define FORGIVE_TRANSPORT_EARLY_MESSAGES_H_

#include <array>
#include <cstdint>
#include <cstring>

#include "transport/array.h"
#include "transport/check.h"
#include "transport/config.h"
#include "transport/wire.h"

namespace forgive {

inline bool KeepsEarlyMessages(const Config& config) {
  return config.early_messages && config.recovery == Recovery::kSelectiveRepeat;
}

// The data packets of the next kEarlyMessages messages that have no posted receive, one each: such a message is one
// packet. A packet whose payload was cut waits as it came.
//
// Invariant: a place holds at most one packet, that of its message; a sender does not use the place again before the
// credit for that message told it that the packet is no longer there.
class EarlyMessages {
 public:
  struct Packet {
    DataHeader header;  // its number and tag are verified, its payload's CRC is not
    bool held = false;
    bool trimmed = false;
    bool ce = false;
    std::array<uint8_t, kMaxPayloadBytes> payload;
  };

  // Without places where the receiver keeps none.
  explicit EarlyMessages(bool keeps) : packets_(keeps ? kEarlyMessages : 0) {}
  bool has_memory() const { return packets_.has_memory(); }

  // Whether a packet of this message belongs here, where `posted` receives were posted.
  bool Concerns(uint32_t message, uint32_t posted) const { return message - posted < packets_.size(); }
  // `payload`: nullptr if it was cut. False: it is not the whole of its message, or the place is taken.
  bool Hold(const DataHeader& header, const uint8_t* payload, bool ce);
  // The packet of this message, or nullptr.
  Packet* Find(uint32_t message) {
    if (packets_.size() == 0) return nullptr;
    Packet& packet = packets_[message % kEarlyMessages];
    return packet.held && packet.header.message_number == message ? &packet : nullptr;
  }

 private:
  Array<Packet> packets_;
};

inline bool EarlyMessages::Hold(const DataHeader& header, const uint8_t* payload, bool ce) {
  if (header.offset_in_message != 0 || header.payload_length != header.message_length) return false;
  Packet& packet = packets_[header.message_number % kEarlyMessages];
  if (packet.held) return false;
  FORGIVE_CHECK(header.payload_length <= packet.payload.size());
  packet.header = header;
  packet.held = true;
  packet.trimmed = payload == nullptr;
  packet.ce = ce;
  if (payload != nullptr) std::memcpy(packet.payload.data(), payload, header.payload_length);
  return true;
}

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_EARLY_MESSAGES_H_
