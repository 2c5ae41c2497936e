// SPDX-License-Identifier: Apache-2.0
// The words for each reason.
#include "plugin/fail_words.h"

namespace forgive {

const char* Words(FailReason reason) {
  switch (reason) {
    case FailReason::kNone:
      return "no reason given";
    case FailReason::kPeerSilent:
      return "the peer was silent for FORGIVE_PEER_TIMEOUT_S";
    case FailReason::kReset:
      return "the peer closed the connection";
    case FailReason::kTooLong:
      return "a send is longer than its posted receive";
    case FailReason::kRefused:
      return "the peer refused the connection: it has as many as its FORGIVE_MAX_CONNECTIONS allows, or no memory "
             "for one more";
    case FailReason::kVersionMismatch:
      return "the peer speaks another version of the protocol; use the same library on all hosts";
    case FailReason::kNoAnswer:
      return "the peer did not answer; is UDP let through between the hosts (FORGIVE_INTERFACE, FORGIVE_PORT_RANGE)?";
    case FailReason::kClosedHere:
      return "closed here with requests in flight";
    case FailReason::kOverLimit:
      return "this process has as many connections on the interface as FORGIVE_MAX_CONNECTIONS allows; raise it, or "
             "try again: a closed connection keeps its place for some seconds";
    case FailReason::kNoPayload:
      return "the interface's MTU is too small for a data packet; raise it";
    case FailReason::kDataSwallowed:
      return "the peer answers, but for FORGIVE_PEER_TIMEOUT_S the path swallowed every data packet, even the "
             "smallest that a transfer is cut to; look for a port or tunnel whose MTU is below 1,280 bytes, or a "
             "filter on the data's DSCP (FORGIVE_DSCP_DATA), and start again";
    case FailReason::kNoMemory:
      return "no memory is left in this process for the connection: raise the limit (ulimit -v, the container's), or "
             "open fewer connections";
    case FailReason::kOtherRails:
      return "the peer has another number of rails; set FORGIVE_RAILS on all hosts, to as many interfaces";
  }
  return "unknown";
}

}  // namespace forgive
