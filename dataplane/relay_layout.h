/* SPDX-License-Identifier: Apache-2.0 */
/* What stands before every packet between a host and the user-space relay, as plain C: the relay includes it too. */
#ifndef FORGIVE_DATAPLANE_RELAY_LAYOUT_H_
#define FORGIVE_DATAPLANE_RELAY_LAYOUT_H_

#include "transport/wire_layout.h" /* the types of bytes */

/* 32 bytes before every packet between a host and the user-space relay that stands for a trimming switch (never on a
 * real network). To the relay: the destination; from it: the source. `address` is a socket address from its first
 * byte, unused bytes zero. */
#define FORGIVE_RELAY_MAGIC_0 'F'
#define FORGIVE_RELAY_MAGIC_1 'R'
#define FORGIVE_RELAY_MAGIC_2 'Y'
#define FORGIVE_RELAY_CE 1u /* forgive_relay_prefix.flags: Congestion Experienced */
struct forgive_relay_prefix {
  forgive_u8 magic[3];
  forgive_u8 flags;
  forgive_u8 address[28];
};

#endif /* FORGIVE_DATAPLANE_RELAY_LAYOUT_H_ */
