// SPDX-License-Identifier: Apache-2.0
// Where the compiler must inline, and where it must not: the few functions that every packet passes.
#ifndef FORGIVE_TRANSPORT_INLINE_H_
#define FORGIVE_TRANSPORT_INLINE_H_

// Into every caller: a few instructions whose operands should stay in registers.
#define FORGIVE_INLINE __attribute__((always_inline)) inline
// Everything that it calls, into it: a way of a packet, whose steps are functions for the reader only.
#define FORGIVE_FLATTEN __attribute__((flatten))
// Never into a flattened caller: a way of its own.
#define FORGIVE_APART __attribute__((noinline))
// Never, and laid out apart from the rest: what few packets need.
#define FORGIVE_RARE __attribute__((noinline, cold))

#endif  // FORGIVE_TRANSPORT_INLINE_H_
