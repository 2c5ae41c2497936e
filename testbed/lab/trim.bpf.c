// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
// The trimming switch: forwards at the ingress hook by destination; marks, cuts or drops at the egress hook.
//
// Built twice: as it is, it decides by the true backlog of the port's qdisc; with FORGIVE_VIRTUAL_QUEUE, for kernels
// without the kfunc bpf_cast_to_kern_ctx, by a queue that it imagines (which drifts from the true one).
// clang-format off: what follows it needs the types of the first
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
// clang-format on
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <stddef.h>

#include "testbed/lab/switch_layout.h"
#include "transport/wire_layout.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define FORGIVE_WIRE_OVERHEAD 24  // preamble, checksum and gap of an Ethernet frame, as `stab` charges them
#define FORGIVE_EXAMINED_BYTES (ETH_HLEN + sizeof(struct ipv6hdr) + sizeof(struct udphdr))
#define FORGIVE_ECN_MASK 3
#define FORGIVE_FRAGMENT_MASK 0x3fff  // more fragments, and the offset

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct forgive_switch_parameters);
} parameters SEC(".maps");

// Destination address, as a number, to the port's interface.
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, FORGIVE_SWITCH_MAX_PORTS);
  __type(key, __u64);
  __type(value, __u32);
} addresses SEC(".maps");

// The ports' interfaces, for flooding; zeros fill the rest.
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, FORGIVE_SWITCH_MAX_PORTS);
  __type(key, __u32);
  __type(value, __u32);
} ports SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
  __uint(max_entries, FORGIVE_SWITCH_MAX_PORTS);
  __type(key, __u32);
  __type(value, struct forgive_port_counters);
} counters SEC(".maps");

// Frames to nobody, per processor.
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u64);
} unknown_destination SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 4 * 1024 * 1024);
} trims SEC(".maps");

// ---- How much waits at the port ----

#ifdef FORGIVE_VIRTUAL_QUEUE

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, FORGIVE_SWITCH_MAX_PORTS);
  __type(key, __u32);
  __type(value, struct forgive_virtual_queue);
} virtual_queues SEC(".maps");

static __always_inline __u32 Backlog(struct __sk_buff *skb, const struct forgive_switch_parameters *parameter) {
  __u32 ifindex = skb->ifindex;
  struct forgive_virtual_queue *queue = bpf_map_lookup_elem(&virtual_queues, &ifindex);
  if (!queue) return 0;
  __u64 now_ns = bpf_ktime_get_ns();
  // Processors may race here: the loss of one update is less than the drift that this queue has anyway.
  __u64 elapsed_ns = now_ns > queue->updated_ns ? now_ns - queue->updated_ns : 0;
  if (elapsed_ns > 1000000000) elapsed_ns = 1000000000;
  __u64 drained = elapsed_ns * (parameter->drain_bytes_per_second / 1000) / 1000000;
  queue->bytes = queue->bytes > drained ? queue->bytes - drained : 0;
  queue->updated_ns = now_ns;
  return (__u32)queue->bytes;
}

static __always_inline void Enqueued(struct __sk_buff *skb) {
  __u32 ifindex = skb->ifindex;
  struct forgive_virtual_queue *queue = bpf_map_lookup_elem(&virtual_queues, &ifindex);
  if (queue) __sync_fetch_and_add(&queue->bytes, skb->len + FORGIVE_WIRE_OVERHEAD);
}

#else

// The few kernel structures on the way to the backlog; the loader fits the offsets to the running kernel.
#define FORGIVE_KERNEL_STRUCTURE __attribute__((preserve_access_index))

struct gnet_stats_queue {
  __u32 backlog;
} FORGIVE_KERNEL_STRUCTURE;

struct Qdisc {
  struct gnet_stats_queue qstats;
} FORGIVE_KERNEL_STRUCTURE;

struct net_device {
  struct Qdisc *qdisc;
} FORGIVE_KERNEL_STRUCTURE;

struct sk_buff {
  struct net_device *dev;
} FORGIVE_KERNEL_STRUCTURE;

extern void *bpf_cast_to_kern_ctx(void *context) __ksym;

static __always_inline __u32 Backlog(struct __sk_buff *skb, const struct forgive_switch_parameters *parameter) {
  (void)parameter;
  struct sk_buff *kernel_skb = bpf_cast_to_kern_ctx(skb);
  return kernel_skb->dev->qdisc->qstats.backlog;
}

static __always_inline void Enqueued(struct __sk_buff *skb) { (void)skb; }

#endif

// ---- Forwarding ----

static __always_inline __u64 AddressKey(const __u8 *address) {
  __u64 key = 0;
#pragma unroll
  for (int i = 0; i < ETH_ALEN; i++) key = key << 8 | address[i];
  return key;
}

static __always_inline int DropUnknown(void) {
  __u32 zero = 0;
  __u64 *unknown = bpf_map_lookup_elem(&unknown_destination, &zero);
  if (unknown) *unknown += 1;
  return TC_ACT_SHOT;
}

// A copy to every port but the sender's (known by its address: behind the delay line all frames come from one side).
static __always_inline int Flood(struct __sk_buff *skb, __u64 source) {
  __u32 *from = bpf_map_lookup_elem(&addresses, &source);
  __u32 sender = from ? *from : 0;
  for (__u32 i = 0; i < FORGIVE_SWITCH_MAX_PORTS; i++) {
    __u32 index = i;
    __u32 *port = bpf_map_lookup_elem(&ports, &index);
    if (!port || *port == 0) break;
    if (*port != sender) bpf_clone_redirect(skb, *port, 0);
  }
  return TC_ACT_SHOT;
}

static __always_inline int Forward(struct __sk_buff *skb) {
  void *data = (void *)(long)skb->data;
  void *data_end = (void *)(long)skb->data_end;
  struct ethhdr *ethernet = data;
  if ((void *)(ethernet + 1) > data_end) return DropUnknown();
  __u64 source = AddressKey(ethernet->h_source);
  if (ethernet->h_dest[0] & 1) return Flood(skb, source);
  __u64 destination = AddressKey(ethernet->h_dest);
  __u32 *port = bpf_map_lookup_elem(&addresses, &destination);
  if (!port) return DropUnknown();
  return (int)bpf_redirect(*port, 0);
}

// At every port's ingress: a host's frame enters, through the delay line where there is one.
SEC("tc")
int forgive_ingress(struct __sk_buff *skb) {
  __u32 zero = 0;
  struct forgive_switch_parameters *parameter = bpf_map_lookup_elem(&parameters, &zero);
  if (parameter && parameter->line_ifindex) return (int)bpf_redirect(parameter->line_ifindex, 0);
  return Forward(skb);
}

// Where the delay line gives the frames back.
SEC("tc")
int forgive_line(struct __sk_buff *skb) { return Forward(skb); }

// ---- Queueing ----

// What the decision needs to know of a packet.
struct packet_facts {
  bool is_udp; /* over IPv4 without options or fragments, or IPv6 without extension headers */
  bool is_ipv4;
  __u8 dscp;
  __u8 ecn;
};

static __always_inline struct packet_facts Examine(struct __sk_buff *skb) {
  struct packet_facts facts = {};
  // A frame from the delay line may have all but its Ethernet header outside the linear part.
  __u32 wanted = skb->len < FORGIVE_EXAMINED_BYTES ? skb->len : FORGIVE_EXAMINED_BYTES;
  if ((void *)(long)skb->data + FORGIVE_EXAMINED_BYTES > (void *)(long)skb->data_end) bpf_skb_pull_data(skb, wanted);
  void *data = (void *)(long)skb->data;
  void *data_end = (void *)(long)skb->data_end;
  struct ethhdr *ethernet = data;
  if ((void *)(ethernet + 1) > data_end) return facts;
  if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
    struct iphdr *ip = (void *)(ethernet + 1);
    if ((void *)(ip + 1) > data_end) return facts;
    facts.is_ipv4 = true;
    facts.dscp = ip->tos >> 2;
    facts.ecn = ip->tos & FORGIVE_ECN_MASK;
    facts.is_udp = ip->ihl == 5 && ip->protocol == IPPROTO_UDP && !(ip->frag_off & bpf_htons(FORGIVE_FRAGMENT_MASK));
  } else if (ethernet->h_proto == bpf_htons(ETH_P_IPV6)) {
    struct ipv6hdr *ip = (void *)(ethernet + 1);
    if ((void *)(ip + 1) > data_end) return facts;
    __u8 traffic_class = (__u8)(ip->priority << 4 | ip->flow_lbl[0] >> 4);
    facts.dscp = traffic_class >> 2;
    facts.ecn = traffic_class & FORGIVE_ECN_MASK;
    facts.is_udp = ip->nexthdr == IPPROTO_UDP;
  }
  return facts;
}

static __always_inline __u32 HeadersLength(bool is_ipv4) {
  return ETH_HLEN + (is_ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)) + sizeof(struct udphdr);
}

static __always_inline void Log(struct __sk_buff *skb, bool is_ipv4, struct forgive_port_counters *counter) {
  struct forgive_data_header header;
  if (bpf_skb_load_bytes(skb, HeadersLength(is_ipv4), &header, sizeof(header)) != 0 ||
      header.version != FORGIVE_WIRE_VERSION || header.type != FORGIVE_TYPE_DATA) {
    counter->unlogged++;
    return;
  }
  struct forgive_trim_record *record = bpf_ringbuf_reserve(&trims, sizeof(*record), 0);
  if (!record) {
    counter->log_lost++;
    return;
  }
  record->connection_id = bpf_be64_to_cpu(header.connection_id);
  record->message_number = bpf_ntohl(header.message_number);
  record->offset_in_message = bpf_ntohl(header.offset_in_message);
  record->payload_length = bpf_ntohs(header.payload_length);
  record->ifindex = skb->ifindex;
  bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);  // the logger looks by itself: a wake-up per trim would cost more
}

// RFC 1624: the checksum after one 16-bit word of the header changed.
static __always_inline __u16 ChecksumReplaced(__u16 checksum, __u16 before, __u16 after) {
  __u32 sum = (__u16)~checksum + (__u32)(__u16)~before + after;
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return (__u16)~sum;
}

// Repairs the IPv4 header of a packet that was cut; false if it is not there.
static __always_inline bool RepairIpv4(struct __sk_buff *skb, const struct forgive_switch_parameters *parameter) {
  struct iphdr *ip = (void *)(long)skb->data + ETH_HLEN;
  if ((void *)(ip + 1) > (void *)(long)skb->data_end) return false;
  __u8 tos_before = ip->tos;
  ip->tos = (__u8)(parameter->dscp_trimmed << 2 | (tos_before & FORGIVE_ECN_MASK));
  // The byte before tos holds version and header length and did not change.
  ip->check = ChecksumReplaced(ip->check, bpf_htons(tos_before), bpf_htons(ip->tos));
  if (parameter->trim_mode == FORGIVE_TRIM_RAW) return true;
  __u16 length_before = ip->tot_len;
  ip->tot_len = bpf_htons((__u16)(parameter->trim_length - ETH_HLEN));
  ip->check = ChecksumReplaced(ip->check, length_before, ip->tot_len);
  return true;
}

static __always_inline bool RepairIpv6(struct __sk_buff *skb, const struct forgive_switch_parameters *parameter) {
  struct ipv6hdr *ip = (void *)(long)skb->data + ETH_HLEN;
  if ((void *)(ip + 1) > (void *)(long)skb->data_end) return false;
  __u8 ecn = ip->flow_lbl[0] >> 4 & FORGIVE_ECN_MASK;
  __u8 traffic_class = (__u8)(parameter->dscp_trimmed << 2 | ecn);
  ip->priority = traffic_class >> 4;
  ip->flow_lbl[0] = (__u8)(traffic_class << 4 | (ip->flow_lbl[0] & 0x0f));
  if (parameter->trim_mode != FORGIVE_TRIM_RAW) {
    ip->payload_len = bpf_htons((__u16)(parameter->trim_length - ETH_HLEN - sizeof(struct ipv6hdr)));
  }
  return true;
}

static __always_inline bool RepairUdp(struct __sk_buff *skb, bool is_ipv4,
                                      const struct forgive_switch_parameters *parameter) {
  if (parameter->trim_mode > FORGIVE_TRIM_STALE) return true;
  __u32 offset = HeadersLength(is_ipv4) - sizeof(struct udphdr);
  __u16 length = bpf_htons((__u16)(parameter->trim_length - offset));
  if (bpf_skb_store_bytes(skb, offset + offsetof(struct udphdr, len), &length, sizeof(length), 0) != 0) return false;
  if (parameter->trim_mode == FORGIVE_TRIM_STALE) return true;
  __u16 none = 0;
  return bpf_skb_store_bytes(skb, offset + offsetof(struct udphdr, check), &none, sizeof(none), 0) == 0;
}

// The queue is full for this trimmable packet: what is left of it goes to the header queue.
static __always_inline int Trim(struct __sk_buff *skb, bool is_ipv4,
                                const struct forgive_switch_parameters *parameter,
                                struct forgive_port_counters *counter) {
  if (skb->gso_segs > 1) {
    counter->gso_refused++;
    skb->priority = parameter->data_priority;
  } else {
    skb->priority = parameter->header_priority;
    if (skb->len <= parameter->trim_length) {
      counter->whole++;
    } else {
      Log(skb, is_ipv4, counter);
      counter->trimmed++;
      if (bpf_skb_change_tail(skb, parameter->trim_length, 0) != 0 ||
          !(is_ipv4 ? RepairIpv4(skb, parameter) : RepairIpv6(skb, parameter)) ||
          !RepairUdp(skb, is_ipv4, parameter)) {
        counter->dropped++;
        return TC_ACT_SHOT;
      }
    }
  }
  counter->bytes += skb->len;
  Enqueued(skb);
  return TC_ACT_OK;
}

static __always_inline bool DrawMark(__u32 backlog, const struct forgive_switch_parameters *parameter) {
  if (backlog < parameter->ecn_min_bytes) return false;
  if (backlog >= parameter->ecn_max_bytes) return true;
  __u64 ppm = (__u64)parameter->ecn_probability_ppm * (backlog - parameter->ecn_min_bytes) /
              (parameter->ecn_max_bytes - parameter->ecn_min_bytes);
  return (((__u64)bpf_get_prandom_u32() * 1000000) >> 32) < ppm;
}

// At every port's egress, before its qdisc.
SEC("tc")
int forgive_egress(struct __sk_buff *skb) {
  __u32 zero = 0;
  __u32 ifindex = skb->ifindex;
  struct forgive_switch_parameters *parameter = bpf_map_lookup_elem(&parameters, &zero);
  struct forgive_port_counters *counter = bpf_map_lookup_elem(&counters, &ifindex);
  if (!parameter || !counter) return TC_ACT_OK;
  __u32 backlog = Backlog(skb, parameter);
  struct packet_facts facts = Examine(skb);
  bool is_ours = facts.is_udp && facts.dscp == parameter->dscp_data;
  if (facts.is_udp && (facts.dscp == parameter->dscp_control || facts.dscp == parameter->dscp_trimmed)) {
    skb->priority = parameter->header_priority;
    counter->control++;
  } else {
    bool is_trimmable = is_ours && parameter->trim_enabled;
    __u32 limit = is_trimmable ? parameter->trim_threshold_bytes : parameter->queue_bytes;
    if (backlog + skb->len > limit) {
      if (is_trimmable) return Trim(skb, facts.is_ipv4, parameter, counter);
      counter->dropped++;
      return TC_ACT_SHOT;
    }
    if (facts.ecn != 0 && facts.ecn != FORGIVE_ECN_MASK && DrawMark(backlog, parameter) && bpf_skb_ecn_set_ce(skb)) {
      counter->marked++;
    }
    skb->priority = parameter->data_priority;
    if (is_ours) {
      counter->whole++;
    } else {
      counter->other++;
    }
  }
  counter->bytes += skb->len;
  Enqueued(skb);
  return TC_ACT_OK;
}
