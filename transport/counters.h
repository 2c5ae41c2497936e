// SPDX-License-Identifier: Apache-2.0
// What the transport counts, per endpoint; plain integers, read by the thread that owns the endpoint.
#ifndef FORGIVE_TRANSPORT_COUNTERS_H_
#define FORGIVE_TRANSPORT_COUNTERS_H_

#include <array>
#include <cstdint>

namespace forgive {

// Why a trimmed header ended as it did. The words of docs/protocol.md, of the statistics and of the tests.
enum class Decision : uint8_t {
  kAlreadySettled,
  kNotForgivable,
  kNoOpenBudget,
  kNotVested,
  kOverBudget,
  kDrawRefused,
  kForgiven,
};
inline constexpr int kDecisions = 7;

struct Counters {
  // Sender. Payload bytes.
  uint64_t sent_bytes = 0;
  uint64_t sent_exempt_bytes = 0;
  uint64_t retransmitted_bytes = 0;
  uint64_t packets_sent = 0;  // data packets
  uint64_t reports_received = 0;
  uint64_t stale_reports = 0;
  uint64_t rate_cuts_mark = 0;
  uint64_t rate_cuts_trim = 0;
  uint64_t rate_cuts_timeout = 0;
  uint64_t signals_ignored = 0;
  uint64_t notifications = 0;  // reports that told of new marks, obeyed or not
  uint64_t skipped_bytes = 0;  // never sent, as the receiver gave them up (Experiments::early_close)
  uint64_t timeouts = 0;
  uint64_t segment_cuts = 0;     // connections' segments became smaller, as the path swallowed longer packets
  uint64_t paths_given_up = 0;   // of connections that spray: nothing came through by them
  uint64_t paths_returned = 0;   // something did again
  uint64_t lost_by_request = 0;  // packets
  uint64_t lost_by_rack = 0;     // packets
  uint64_t mode_changes = 0;
  // Receiver.
  uint64_t received_bytes = 0;  // distinct
  uint64_t duplicate_bytes = 0;
  uint64_t late_bytes = 0;  // arrived after they had been forgiven
  uint64_t forgiven_bytes = 0;
  uint64_t contributions_lost = 0;
  uint64_t packets_received = 0;  // whole data packets
  uint64_t trims = 0;             // trimmed headers
  uint64_t trimmed_bytes = 0;     // payload bytes that these headers announced
  uint64_t marks = 0;             // data packets with CE
  uint64_t reports_sent = 0;
  std::array<uint64_t, kDecisions> decisions{};
  // Refused before any state was touched, in packets.
  uint64_t bad_tag = 0;
  uint64_t malformed = 0;
  uint64_t foreign_version = 0;
  uint64_t unknown_connection = 0;
  uint64_t replayed = 0;
  uint64_t bad_crc = 0;
  uint64_t out_of_window = 0;
  uint64_t out_of_order = 0;  // dropped by go-back-N
  uint64_t out_of_order_bytes = 0;
  uint64_t events_full = 0;
};

}  // namespace forgive

#endif  // FORGIVE_TRANSPORT_COUNTERS_H_
