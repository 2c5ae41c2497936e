/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* What the eBPF switch and its loader share: parameters, counters and the record of one trim, as plain C. */
#ifndef FORGIVE_TESTBED_LAB_SWITCH_LAYOUT_H_
#define FORGIVE_TESTBED_LAB_SWITCH_LAYOUT_H_

#include <linux/types.h>

#define FORGIVE_SWITCH_MAX_PORTS 64

/* What is repaired in a packet whose payload was cut (forgive_switch_parameters.trim_mode). */
#define FORGIVE_TRIM_FULL 0  /* IP and UDP length; UDP checksum zero */
#define FORGIVE_TRIM_STALE 1 /* IP and UDP length; UDP checksum kept */
#define FORGIVE_TRIM_SAI 2   /* IP length only */
#define FORGIVE_TRIM_RAW 3   /* nothing */

/* One for all ports of a switch. Bytes of queue are as the qdisc counts them: frame plus 24 on the wire. */
struct forgive_switch_parameters {
  __u32 line_ifindex; /* frames from hosts go there first; 0: there is no delay line */
  __u32 trim_enabled; /* 0: trimmable packets are tail-dropped like all others */
  __u32 trim_mode;
  __u32 trim_length; /* bytes of a frame that are left, the Ethernet header included */
  __u32 trim_threshold_bytes;
  __u32 queue_bytes; /* what is not trimmable is tail-dropped beyond this */
  __u32 ecn_min_bytes;
  __u32 ecn_max_bytes;
  __u32 ecn_probability_ppm; /* at ecn_max_bytes; it rises to that from zero at ecn_min_bytes, and is one above */
  __u32 dscp_data;
  __u32 dscp_control;
  __u32 dscp_trimmed;
  __u32 header_priority; /* class of the header queue, as skb->priority */
  __u32 data_priority;
  __u64 drain_bytes_per_second; /* of the virtual queue; unused where the true backlog is read */
};

/* Per port and processor, in frames but for the bytes. */
struct forgive_port_counters {
  __u64 whole;       /* trimmable, passed uncut */
  __u64 trimmed;     /* trimmable, cut */
  __u64 marked;      /* Congestion Experienced set here */
  __u64 control;     /* control packets and packets that were cut upstream: header queue */
  __u64 other;       /* everything else that passed */
  __u64 dropped;     /* tail-dropped */
  __u64 gso_refused; /* super-packets that were due to be cut: passed as they were, since a cut would lose segments */
  __u64 unlogged;    /* cut, but no data header of ours: not in the log */
  __u64 log_lost;    /* cut, but the log's ring was full */
  __u64 bytes;       /* of frames passed, after the cut */
};

/* One cut packet, host byte order. */
struct forgive_trim_record {
  __u64 connection_id;
  __u32 message_number;
  __u32 offset_in_message;
  __u32 payload_length; /* all of it is missing: what the cut left of it proves nothing */
  __u32 ifindex;        /* of the port */
};

/* Virtual queue of one port, where the kernel does not show the true backlog. */
struct forgive_virtual_queue {
  __u64 bytes;
  __u64 updated_ns;
};

#endif /* FORGIVE_TESTBED_LAB_SWITCH_LAYOUT_H_ */
