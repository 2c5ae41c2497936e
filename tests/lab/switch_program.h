// SPDX-License-Identifier: Apache-2.0
// The switch's BPF program, loaded, with its maps: one frame at a time, run by the kernel without a network.
#ifndef FORGIVE_TESTS_LAB_SWITCH_PROGRAM_H_
#define FORGIVE_TESTS_LAB_SWITCH_PROGRAM_H_

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "testbed/lab/switch_layout.h"
#include "tests/lab/packet.h"

namespace forgive::lab {

inline constexpr std::uint32_t kInterface = 1;  // lo: the only one that test runs can name everywhere
inline constexpr std::uint32_t kHeaderPriority = 0x10010;
inline constexpr std::uint32_t kDataPriority = 0x10020;
inline constexpr std::uint64_t kThreshold = 300000;
inline constexpr std::uint64_t kFull = kThreshold + 1;
inline constexpr std::uint64_t kFixtureBytes = 14 + 20 + 8 + 56 + 1400;  // of the IPv4 frame that PacketFields describes
inline constexpr std::uint64_t kEcnMin = 100000;
inline constexpr std::uint64_t kEcnMax = 200000;

struct Outcome {
  int verdict = -1;
  Frame frame;
  std::uint32_t priority = 0;
};

inline forgive_switch_parameters DefaultParameters() {
  forgive_switch_parameters parameters{};
  parameters.trim_enabled = 1;
  parameters.trim_mode = FORGIVE_TRIM_FULL;
  parameters.trim_length = 128;
  parameters.trim_threshold_bytes = kThreshold;
  parameters.queue_bytes = kThreshold;
  parameters.ecn_min_bytes = kEcnMin;
  parameters.ecn_max_bytes = kEcnMax;
  parameters.ecn_probability_ppm = 200000;
  parameters.dscp_data = 10;
  parameters.dscp_control = 46;
  parameters.dscp_trimmed = 11;
  parameters.header_priority = kHeaderPriority;
  parameters.data_priority = kDataPriority;
  parameters.drain_bytes_per_second = 0;  // the queue stays as full as a test made it
  return parameters;
}

// One loaded switch program, its maps and one run at a time.
class Switch {
 public:
  Switch() : object_(bpf_object__open_file(FORGIVE_LAB_OBJECT, nullptr)) {
    if (object_ == nullptr || bpf_object__load(object_) != 0) {
      ADD_FAILURE() << FORGIVE_LAB_OBJECT << " does not load: " << std::strerror(errno);
      return;
    }
    const forgive_port_counters none{};
    const std::vector<forgive_port_counters> all(static_cast<std::size_t>(libbpf_num_possible_cpus()), none);
    Update("counters", kInterface, all.data());
    ring_ = ring_buffer__new(Map("trims"), Collect, &trims_, nullptr);
    SetParameters(DefaultParameters());
    SetBacklog(0);
  }
  ~Switch() {
    ring_buffer__free(ring_);
    bpf_object__close(object_);
  }
  Switch(const Switch&) = delete;
  Switch& operator=(const Switch&) = delete;

  void SetParameters(const forgive_switch_parameters& parameters) {
    Update("parameters", std::uint32_t{0}, &parameters);
  }
  void SetBacklog(std::uint64_t bytes) {
    const forgive_virtual_queue queue{bytes, 0};
    Update("virtual_queues", kInterface, &queue);
  }
  std::uint64_t Backlog() {
    forgive_virtual_queue queue{};
    bpf_map_lookup_elem(Map("virtual_queues"), &kInterface, &queue);
    return queue.bytes;
  }
  void SetAddress(std::uint64_t address, std::uint32_t interface) { Update("addresses", address, &interface); }

  Outcome Run(const char* program, Frame frame, std::uint32_t gso_segs = 0) {
    Outcome outcome;
    outcome.frame.resize(frame.size() + 256);
    __sk_buff context{};
    context.ifindex = kInterface;
    context.gso_segs = gso_segs;
    __sk_buff context_after{};
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame.data(), .data_out = outcome.frame.data(),
                .data_size_in = static_cast<__u32>(frame.size()),
                .data_size_out = static_cast<__u32>(outcome.frame.size()), .ctx_in = &context,
                .ctx_out = &context_after, .ctx_size_in = sizeof context, .ctx_size_out = sizeof context_after);
    const bpf_program* loaded = bpf_object__find_program_by_name(object_, program);
    const int error = bpf_prog_test_run_opts(bpf_program__fd(loaded), &options);
    EXPECT_EQ(error, 0) << std::strerror(errno);
    outcome.frame.resize(options.data_size_out);
    outcome.verdict = static_cast<int>(options.retval);
    outcome.priority = context_after.priority;
    return outcome;
  }

  forgive_port_counters Counters() {
    std::vector<forgive_port_counters> parts(static_cast<std::size_t>(libbpf_num_possible_cpus()));
    bpf_map_lookup_elem(Map("counters"), &kInterface, parts.data());
    forgive_port_counters sum{};
    for (const forgive_port_counters& part : parts) {
      for (std::size_t i = 0; i < sizeof sum / sizeof(__u64); ++i) {
        reinterpret_cast<__u64*>(&sum)[i] += reinterpret_cast<const __u64*>(&part)[i];
      }
    }
    return sum;
  }

  const std::vector<forgive_trim_record>& Trims() {
    ring_buffer__consume(ring_);
    return trims_;
  }

 private:
  static int Collect(void* context, void* data, std::size_t size) {
    if (size < sizeof(forgive_trim_record)) return -EINVAL;
    static_cast<std::vector<forgive_trim_record>*>(context)->push_back(*static_cast<forgive_trim_record*>(data));
    return 0;
  }
  int Map(const char* name) const { return bpf_object__find_map_fd_by_name(object_, name); }
  template <typename Key>
  void Update(const char* map, Key key, const void* value) {
    ASSERT_EQ(bpf_map_update_elem(Map(map), &key, value, BPF_ANY), 0) << map << ": " << std::strerror(errno);
  }

  bpf_object* object_;
  ring_buffer* ring_ = nullptr;
  std::vector<forgive_trim_record> trims_;
};

}  // namespace forgive::lab

#endif  // FORGIVE_TESTS_LAB_SWITCH_PROGRAM_H_
