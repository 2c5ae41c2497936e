/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* Byte layout of every packet, as plain C: shared by the transport and by the eBPF switch. */
#ifndef FORGIVE_TRANSPORT_WIRE_LAYOUT_H_
#define FORGIVE_TRANSPORT_WIRE_LAYOUT_H_

/* Every integer is in network byte order. The structures are the UDP payload, from its first byte. Fields are
 * aligned by construction, so no packing attribute is needed; transport/wire.cc asserts sizes and offsets. */

#ifdef __cplusplus
#include <cstdint>
typedef std::uint8_t forgive_u8;
typedef std::uint16_t forgive_be16;
typedef std::uint32_t forgive_be32;
typedef std::uint64_t forgive_be64;
#else
typedef unsigned char forgive_u8;
typedef unsigned short forgive_be16;
typedef unsigned int forgive_be32;
typedef unsigned long long forgive_be64;
#endif

#define FORGIVE_WIRE_VERSION 1

/* forgive_*.type */
#define FORGIVE_TYPE_DATA 1
#define FORGIVE_TYPE_REPORT 2
#define FORGIVE_TYPE_CONNECT 3
#define FORGIVE_TYPE_CONNECT_REPLY 4
#define FORGIVE_TYPE_PROBE 5       /* asks the peer for a sign of life */
#define FORGIVE_TYPE_PROBE_REPLY 6 /* a sender's answer; a receiver answers by a report */
#define FORGIVE_TYPE_RESET 7       /* the connection is gone; unfinished requests fail */

/* forgive_report.flags */
#define FORGIVE_REPORT_EXEMPT_ELIGIBLE 1u
#define FORGIVE_REPORT_BUDGET_EXHAUSTED 2u
#define FORGIVE_REPORT_TRIMMED 4u     /* caused by a trimmed header: carries no usable timestamp */
#define FORGIVE_REPORT_CLOSING 8u     /* the receiver has closed: what is not completed here never will be */
#define FORGIVE_REPORT_HAS_NEWEST 16u /* newest_packet_number and newest_timestamp are valid */
#define FORGIVE_REPORT_STEP_START 32u /* step_start_message is valid */

/* Streams and segments: a message occupies its length rounded up to the unit, plus one unit, its end slot. */
#define FORGIVE_UNIT_BYTES 16
#define FORGIVE_TIMESTAMP_UNIT_NS 64

/* 56 bytes. It alone tells what is missing after the payload was cut. */
struct forgive_data_header {
  forgive_u8 version;
  forgive_u8 type;
  forgive_be16 flags;
  forgive_be16 payload_length; /* bytes that followed this header when the packet was sent */
  forgive_be16 path;
  forgive_be64 connection_id; /* chosen by the receiver of this packet */
  forgive_be64 stream_offset; /* stream position of the first payload byte; a multiple of the unit */
  forgive_be32 message_number;
  forgive_be32 offset_in_message;
  forgive_be32 message_length;
  forgive_be32 packet_number; /* low 32 bits; the tag covers all 64 */
  forgive_be32 send_timestamp; /* FORGIVE_TIMESTAMP_UNIT_NS units, the sender's clock */
  forgive_be32 payload_crc32c;
  forgive_be64 tag;
};

/* 80 bytes, then request_count and then sack_count of forgive_range. */
struct forgive_report {
  forgive_u8 version;
  forgive_u8 type;
  forgive_be16 flags;
  forgive_be16 request_count;
  forgive_be16 sack_count;
  forgive_be64 connection_id; /* chosen by the sender of the data */
  forgive_be32 report_number; /* low 32 bits */
  forgive_be32 completed_messages; /* messages 0 .. n-1 are whole */
  forgive_be64 rcv_nxt;
  forgive_be32 posted_messages; /* the credit: messages 0 .. n-1 have a posted receive */
  forgive_be32 same_step_end;   /* the flags speak for messages completed_messages .. n-1 */
  forgive_be32 step_start_message; /* newest posted message that is the first of its step */
  forgive_be32 newest_packet_number;
  forgive_be32 newest_timestamp; /* echo of that packet's send_timestamp */
  forgive_be32 trimmed_packet_number; /* the packet whose trim made this report */
  forgive_be64 received_bytes; /* cumulative arrived payload, duplicates included */
  forgive_be64 ce_bytes;       /* the part of it that arrived marked Congestion Experienced */
  forgive_be64 tag;
};

struct forgive_range {
  forgive_be32 offset; /* from rcv_nxt */
  forgive_be32 length;
};

/* Of a connector with several rails: where each is, as its driver wrote it. */
struct forgive_rail {
  forgive_u8 address[28];
  forgive_u8 reserved[4];
};

/* 80 bytes, then `rails` of forgive_rail, then zeros up to the size of a full data packet of max_payload. Tagged with
   the listen secret. */
struct forgive_connect {
  forgive_u8 version;
  forgive_u8 type;
  forgive_be16 flags;
  forgive_be16 max_payload; /* the payload size that this packet's own length proves */
  forgive_be16 attempt;
  forgive_be64 listen_id;
  forgive_be64 connection_id; /* the connector's: reports will carry it */
  forgive_u8 nonce[16];
  forgive_u8 identity[16];
  forgive_be32 capabilities;
  forgive_be32 traffic_class;
  forgive_be16 rails; /* 0: one, and its address does not follow */
  forgive_be16 reserved[3];
  forgive_be64 tag;
};

/* 80 bytes. Tagged with the listen secret. */
struct forgive_connect_reply {
  forgive_u8 version;
  forgive_u8 type;
  forgive_be16 flags;
  forgive_be16 max_payload; /* agreed */
  forgive_be16 status;      /* 0, or why it was refused: transport/wire.h */
  forgive_be64 connection_id;      /* the connector's */
  forgive_be64 peer_connection_id; /* the listener's: data will carry it */
  forgive_u8 nonce[16];
  forgive_u8 identity[16];
  forgive_be32 capabilities;
  forgive_be32 scoreboard_bytes; /* the furthest that data may run ahead of rcv_nxt */
  forgive_be64 connector_nonce_echo; /* first 8 bytes of the nonce that is answered */
  forgive_be64 tag;
};

/* 32 bytes: probe, probe reply, reset. */
struct forgive_control {
  forgive_u8 version;
  forgive_u8 type;
  forgive_be16 flags;
  forgive_be16 code;
  forgive_be16 reserved;
  forgive_be64 connection_id;  /* the destination's */
  forgive_be64 control_number; /* rises with every control packet of a connection and direction */
  forgive_be64 tag;
};

#endif /* FORGIVE_TRANSPORT_WIRE_LAYOUT_H_ */
