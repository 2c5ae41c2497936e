// SPDX-License-Identifier: Apache-2.0
// What a plan may say.
#include "testbed/simulator/fabric_plan.h"

#include <fmt/format.h>

namespace forgive::sim {
namespace {

constexpr uint32_t kMaxHosts = 4096;
constexpr uint32_t kMaxSpines = 1024;
constexpr uint32_t kLargestPacket = 65536;
constexpr uint64_t kMinRate = 1'000'000;
constexpr uint64_t kMaxRate = 8'000'000'000'000;
constexpr int64_t kMaxDelayPs = kPicosecondsPerSecond;

// Lines that say what is wrong: the first is the answer.
class Problems {
 public:
  template <typename T>
  void Between(const char* name, T value, T least, T most) {
    if (value < least || value > most) Add(fmt::format("{} = {}: allowed is {} to {}", name, value, least, most));
  }
  void Add(std::string problem) {
    if (first_.empty()) first_ = std::move(problem);
  }
  std::string first() const { return first_; }

 private:
  std::string first_;
};

void ValidateQueues(const FabricPlan& plan, Problems* problems) {
  constexpr uint32_t kLargest = 1u << 30;
  problems->Between("data_queue_bytes", plan.data_queue_bytes, 1u, kLargest);
  problems->Between("header_queue_bytes", plan.header_queue_bytes, 1u, kLargest);
  problems->Between("control_queue_bytes", plan.control_queue_bytes, 1u, kLargest);
  problems->Between("shared_buffer_bytes", plan.shared_buffer_bytes, 1u, kLargest);
  problems->Between("header_queue_share_percent", plan.header_queue_share_percent, 0u, 100u);
  problems->Between("ecn_probability_ppm", plan.ecn_probability_ppm, 0u, Fraction::kOne);
  problems->Between("trimmed_bytes", plan.trimmed_bytes, 0u, kLargestPacket);
  problems->Between("wire_overhead_bytes", plan.wire_overhead_bytes, 0u, kLargestPacket);
  problems->Between("nic_queue_bytes", plan.nic_queue_bytes, 1u, kLargest);
  if (plan.ecn_min_bytes > plan.ecn_max_bytes) {
    problems->Add(
        fmt::format("ecn_min_bytes = {} is more than ecn_max_bytes = {}: nothing is marked below the first, "
                    "everything from the second",
                    plan.ecn_min_bytes, plan.ecn_max_bytes));
  }
}

void ValidateFailures(const FabricPlan& plan, Problems* problems) {
  problems->Between<int64_t>("failure_detection_delay (ps)", plan.failure_detection_delay.value, 0, 60 * kMaxDelayPs);
  if (plan.link_failures.size() > 10000) problems->Add("more than 10000 link failures");
  for (const LinkFailure& failure : plan.link_failures) {
    if (failure.leaf >= plan.leaves || failure.spine >= plan.spines) {
      problems->Add(
          fmt::format("link failure between leaf {} and spine {}: there are leaves 0 to {} and spines 0 to {}",
                      failure.leaf, failure.spine, plan.leaves - 1, plan.spines - 1));
    }
    if (failure.from.ps < 0 || failure.from >= failure.until) {
      problems->Add(
          fmt::format("link failure between leaf {} and spine {}: it must begin at 0 or later and before it "
                      "ends ({} ps to {} ps)",
                      failure.leaf, failure.spine, failure.from.ps, failure.until.ps));
    }
  }
}

}  // namespace

std::string FabricPlan::Validate() const {
  Problems problems;
  problems.Between("leaves", leaves, 1u, kMaxHosts);
  problems.Between("hosts_per_leaf", hosts_per_leaf, 1u, kMaxHosts);
  problems.Between("spines", spines, 1u, kMaxSpines);
  if (uint64_t{leaves} * hosts_per_leaf > kMaxHosts) {
    problems.Add(fmt::format("leaves x hosts_per_leaf = {}: allowed are {} hosts", uint64_t{leaves} * hosts_per_leaf,
                             kMaxHosts));
  }
  problems.Between("host_link_rate (bit/s)", host_link_rate.value, kMinRate, kMaxRate);
  problems.Between("spine_link_rate (bit/s)", spine_link_rate.value, kMinRate, kMaxRate);
  problems.Between<int64_t>("host_link_delay (ps)", host_link_delay.value, 0, kMaxDelayPs);
  problems.Between<int64_t>("spine_link_delay (ps)", spine_link_delay.value, 0, kMaxDelayPs);
  problems.Between<int64_t>("nic_jitter (ps)", nic_jitter.value, 0, kMaxDelayPs);
  ValidateQueues(*this, &problems);
  ValidateFailures(*this, &problems);
  return problems.first();
}

}  // namespace forgive::sim
