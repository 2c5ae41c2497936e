// SPDX-License-Identifier: Apache-2.0
// What the sanitizers are to pass over in the tests of the dpdk driver: DPDK's own libraries, which are not built
// with them. Everything of ours is checked.

// Environment and hotplug keep small strings for the life of the process.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:librte_\n";
}

// The interrupt thread and its users synchronise by DPDK's own spin locks, which the thread sanitizer does not see.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:librte_\ncalled_from_lib:librte_eal\n";
}
