// SPDX-License-Identifier: Apache-2.0
// The hand-made inputs of the targets that read text.
#include <string>
#include <utility>
#include <vector>

#include "write_seeds.h"

namespace forgive {
namespace {

using Texts = std::vector<std::pair<const char*, std::string>>;

bool WriteTexts(const std::filesystem::path& folder, const Texts& texts) {
  for (const auto& [name, text] : texts) {
    if (!WriteFile(folder / name, Bytes(text.begin(), text.end()))) return false;
  }
  return true;
}

// options_fuzz.cc: the first byte chooses the parser.
std::string To(char parser, const std::string& text) { return std::string(1, parser) + text; }

// norms_fuzz.cc: bit 0 of the first byte is JSON lines, bit 1 labels.
constexpr char kNorms = 0, kNormLines = 1, kLabels = 2, kLabelLines = 3;

}  // namespace

bool WriteOptionsSeeds(const std::filesystem::path& folder) {
  return WriteTexts(folder, {
      {"fault_all", To(0, "trim=0.02,drop=0.01,duplicate=0.01,reorder=0.02,corrupt=0.001,delay_us=100,seed=7")},
      {"fault_unknown", To(0, "trim=0.02,lose=1")},
      {"fault_beyond", To(0, "drop=1.000001")},
      {"dpdk_memif", To(1, "--no-huge --vdev=net_memif0,role=client,socket=/run/m address=10.0.0.1/24 mtu=4352")},
      {"dpdk_pci", To(1, "0000:3b:00.0 address=fd00::1/64 gateway=fd00::2 neighbour=fd00::3@02:00:00:00:00:01")},
      {"dpdk_af_packet", To(1, "--vdev net_af_packet0,iface=lo --socket-mem=64,64 --iova-mode=va")},
      {"fraction", To(2, "0.005")},
      {"whole_number", To(2, "69999")},
      {"port_range", To(2, "1024-65535")},
      {"ipv4", To(3, "10.0.0.1:4791")},
      {"ipv6", To(3, "[fe80::1%1]:4791")},
      {"list", To(4, "^dp*,tp?,gradients")},
  });
}

bool WriteSettingsSeeds(const std::filesystem::path& folder) {
  return WriteTexts(folder, {
      {"lab", "FORGIVE_GRADIENT_TRAFFIC=all\nFORGIVE_RING_RANKS=2\nFORGIVE_RTO_US=50000\nFORGIVE_P_HIGH=0.1\n"},
      {"drivers", "FORGIVE_DRIVER=dpdk\nFORGIVE_DPDK=--vdev=net_memif0 address=10.0.0.1/24\nFORGIVE_MTU=4352\n"},
      {"rails", "FORGIVE_RAILS=eth0,eth1\nFORGIVE_PATHS=2\nFORGIVE_LINK_RATE_MBPS=25000\n"},
      {"faults", "FORGIVE_FAULT=trim=0.02,seed=7\nFORGIVE_FAULT_LOG=trims\nFORGIVE_TRIM=1\n"},
      {"code_points", "FORGIVE_DSCP_DATA=10\nFORGIVE_DSCP_CONTROL=46\nFORGIVE_DSCP_TRIMMED=11\n"},
      {"detector", "FORGIVE_DETECTOR=steps\nFORGIVE_DETECTOR_STEPS=1,2,3\nFORGIVE_DETECTOR_WINDOW=5\n"},
      {"statistics", "FORGIVE_STATS=/x/%h.%p.%r%%\nRANK=3\nFORGIVE_TRACE_INTERVAL_US=1000\n"},
      {"nccl_words", "NCCL_SOCKET_IFNAME=^lo,docker\nNCCL_SOCKET_FAMILY=AF_INET6\nNCCL_DEBUG=info\n"},
      {"operation", "FORGIVE_STEP=operation\nFORGIVE_BUDGET_UNIT=contributions\nFORGIVE_ELIGIBLE=all\n"},
      {"unknown", "FORGIVE_NO_SUCH=1\n"},
      {"wrong", "FORGIVE_P_LOW=2\n"},
      {"numbered", std::string("\x05=1024\n\x0a=0.5\n\x1f=7\n")},
  });
}

bool WriteNormsSeeds(const std::filesystem::path& folder) {
  return WriteTexts(folder, {
      {"csv", To(kNorms, "step,norm\n1,0.5\n2,1e-3\n3,nan\n4,-inf\n5,1e999\n")},
      {"csv_layers", To(kNorms, "\xef\xbb\xbfstep,norm_0,norm_1\r\n1, 0.5,+2\r\n\r\n7,1,2\r\n")},
      {"csv_falls", To(kNorms, "step,norm\n2,1\n1,1\n")},
      {"lines", To(kNormLines, "{\"step\": 1, \"norm\": NaN}\n{\"step\": 2, \"norm\": -Infinity}\n")},
      {"lines_layers", To(kNormLines, "{\"step\": 1, \"norms\": [0.5, \"2\", null]}\n")},
      {"lines_no_object", To(kNormLines, "[1, 2]\n")},
      {"labels", To(kLabels, "step,critical\n1,0\n2,1\n")},
      {"label_lines", To(kLabelLines, "{\"step\": 1, \"critical\": true}\n{\"step\": 2, \"critical\": 0}\n")},
  });
}

bool WritePlanSeeds(const std::filesystem::path& folder) {
  return WriteTexts(folder, {
      {"small", "about = \"x\"\n[fabric]\nleaves = 4\nspines = 2\n[workload]\ntp = 2\ndp = 4\nranks_per_leaf = 2\n"},
      {"variants", "seeds = [1, 2]\n[variants.a]\nabout = \"y\"\npolicy.p_high = 0.2\n[variants.b.fabric]\nspines = 1\n"},
      {"failures", "[[fabric.link_failures]]\nleaf = 1\nspine = 0\nfrom_us = 5\nuntil_us = 9\n"},
      {"second_job", "[workload]\ntp = 2\ndp = 2\nranks_per_leaf = 1\n[job2.workload]\nfirst_host = 4\n"},
      {"keys", "[transport]\ncongestion_control = \"nscc\"\npath_policy = \"reps\"\npaths = 8\n[policy]\nrule = \"shed\"\n"},
      {"base", "base = \"other\"\n"},
      {"unknown", "[fabric]\nleafs = 4\n"},
      {"no_toml", "[fabric\nleaves = = 4"},
      {"brackets", "[[[x"},
      {"letters", "about = \"\xc3\xa9\" # \xc3\xa9\n[fabric]\nleav\xc3\xa9s = 4\n"},
  });
}

}  // namespace forgive
