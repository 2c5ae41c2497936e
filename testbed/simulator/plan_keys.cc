// SPDX-License-Identifier: Apache-2.0
// The table of keys: name, place in the plan, and what is allowed.
#include "testbed/simulator/plan_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "dataplane/parse_number.h"

namespace forgive::sim {
namespace {

using nlohmann::json;

std::string Joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

// Collects keys under one section's name.
class Section {
 public:
  Section(std::vector<PlanKey>* keys, std::string prefix) : keys_(keys), prefix_(std::move(prefix)) {}

  template <typename T>
  void Integer(const char* name, T* target, int64_t least, int64_t most) {
    Add(
        name, fmt::format("a whole number from {} to {}", least, most),
        [target, least, most](const PlanValue& given) -> bool {
          const int64_t* value = std::get_if<int64_t>(&given.value);
          if (value == nullptr || *value < least || *value > most) return false;
          *target = static_cast<T>(*value);
          return true;
        },
        [target] { return json(*target); });
  }
  void Number(const char* name, double* target, double least, double most) {
    Add(
        name, fmt::format("a number from {} to {}", least, most),
        [target, least, most](const PlanValue& given) {
          double value = 0;
          if (!ToDouble(given, &value) || value < least || value > most) return false;
          *target = value;
          return true;
        },
        [target] { return json(*target); });
  }
  // In units of `unit`, of which `name` speaks.
  void Rate(const char* name, BitsPerSecond* target) {
    Add(
        name, "a number above 0 and at most 10000",
        [target](const PlanValue& given) {
          double value = 0;
          if (!ToDouble(given, &value) || !(value > 0) || value > 10000) return false;
          *target = {static_cast<uint64_t>(std::llround(value * 1e9))};
          return target->value != 0;
        },
        [target] { return json(static_cast<double>(target->value) / 1e9); });
  }
  void Delay(const char* name, Picoseconds* target) {
    Add(
        name, "a whole number of nanoseconds from 0 to 1000000000",
        [target](const PlanValue& given) {
          const int64_t* value = std::get_if<int64_t>(&given.value);
          if (value == nullptr || *value < 0 || *value > 1000000000) return false;
          *target = FromNanoseconds({*value});
          return true;
        },
        [target] { return json(target->value / kPicosecondsPerNanosecond); });
  }
  void Share(const char* name, Fraction* target) {
    Add(
        name, "a fraction from 0 to 1, in steps of 0.000001",
        [target](const PlanValue& given) {
          double value = 0;
          if (!ToDouble(given, &value) || !(value >= 0) || value > 1) return false;
          *target = {static_cast<uint32_t>(std::llround(value * Fraction::kOne))};
          return true;
        },
        [target] { return json(static_cast<double>(target->ppm) / Fraction::kOne); });
  }
  void Flag(const char* name, bool* target) {
    Add(
        name, "true or false",
        [target](const PlanValue& given) {
          const bool* value = std::get_if<bool>(&given.value);
          if (value != nullptr) *target = *value;
          return value != nullptr;
        },
        [target] { return json(*target); });
  }
  template <typename T>
  void Choice(const char* name, T* target, std::vector<std::pair<std::string, T>> choices) {
    std::vector<std::string> words;
    for (const auto& [word, value] : choices) words.push_back(word);
    Add(
        name, "one of " + Joined(words),
        [target, choices](const PlanValue& given) {
          const std::string* word = std::get_if<std::string>(&given.value);
          if (word == nullptr) return false;
          for (const auto& [name_of, value] : choices) {
            if (name_of != *word) continue;
            *target = value;
            return true;
          }
          return false;
        },
        [target, choices] {
          for (const auto& [name_of, value] : choices) {
            if (value == *target) return json(name_of);
          }
          return json();
        });
  }
  void List(const char* name, std::vector<uint64_t>* target) {
    Add(
        name, "a list of whole numbers from 1",
        [target](const PlanValue& given) {
          const auto* list = std::get_if<std::vector<int64_t>>(&given.value);
          if (list == nullptr || std::any_of(list->begin(), list->end(), [](int64_t n) { return n < 1; }))
            return false;
          target->assign(list->begin(), list->end());
          return true;
        },
        [target] { return json(*target); });
  }

 private:
  static bool ToDouble(const PlanValue& given, double* out) {
    if (const int64_t* whole = std::get_if<int64_t>(&given.value)) {
      *out = static_cast<double>(*whole);
    } else if (const double* real = std::get_if<double>(&given.value)) {
      *out = *real;
    } else {
      return false;
    }
    return true;
  }
  template <typename Set, typename Get>
  void Add(const char* name, std::string allowed, Set set, Get get) {
    PlanKey key;
    key.name = prefix_ + name;
    key.set = [set, allowed, full = key.name](const PlanValue& given) -> std::string {
      return set(given) ? "" : fmt::format("{} = {}: allowed is {}", full, given.text, allowed);
    };
    key.allowed = std::move(allowed);
    key.get = get;
    keys_->push_back(std::move(key));
  }

  std::vector<PlanKey>* keys_;
  std::string prefix_;
};

constexpr int64_t kMostBytes = int64_t{1} << 50;
constexpr int64_t kMostMessageBytes = int64_t{1} << 32;

void FabricKeys(FabricPlan* fabric, Section keys) {
  keys.Integer("leaves", &fabric->leaves, 1, 1024);
  keys.Integer("hosts_per_leaf", &fabric->hosts_per_leaf, 1, 1024);
  keys.Integer("spines", &fabric->spines, 1, 1024);
  keys.Rate("host_link_gbps", &fabric->host_link_rate);
  keys.Rate("spine_link_gbps", &fabric->spine_link_rate);
  keys.Delay("host_link_delay_ns", &fabric->host_link_delay);
  keys.Delay("spine_link_delay_ns", &fabric->spine_link_delay);
  keys.Integer("data_queue_bytes", &fabric->data_queue_bytes, 8192, 1 << 30);
  keys.Integer("header_queue_bytes", &fabric->header_queue_bytes, 128, 1 << 30);
  keys.Integer("control_queue_bytes", &fabric->control_queue_bytes, 8192, 1 << 30);
  keys.Integer("header_queue_share_percent", &fabric->header_queue_share_percent, 1, 100);
  keys.Integer("shared_buffer_bytes", &fabric->shared_buffer_bytes, 8192, int64_t{1} << 31);
  keys.Integer("ecn_min_bytes", &fabric->ecn_min_bytes, 0, 1 << 30);
  keys.Integer("ecn_max_bytes", &fabric->ecn_max_bytes, 0, 1 << 30);
  keys.Integer("ecn_probability_ppm", &fabric->ecn_probability_ppm, 0, 1000000);
  keys.Flag("trims", &fabric->trims);
  keys.Integer("trimmed_bytes", &fabric->trimmed_bytes, 0, 1024);
  keys.Integer("wire_overhead_bytes", &fabric->wire_overhead_bytes, 0, 1024);
  keys.Integer("nic_queue_bytes", &fabric->nic_queue_bytes, 1, 1 << 24);
  keys.Delay("nic_jitter_ns", &fabric->nic_jitter);
  keys.Choice("load_balancing", &fabric->load_balancing,
              {{"ecmp", LoadBalancing::kEcmp}, {"spray", LoadBalancing::kSpray}});
}

void WorkloadKeys(WorkloadPlan* workload, Section keys) {
  keys.Choice(
      "pattern", &workload->pattern,
      {{"training", Pattern::kTraining}, {"permutation", Pattern::kPermutation}, {"incast", Pattern::kIncast}});
  keys.Integer("ranks_per_leaf", &workload->ranks_per_leaf, 1, 1024);
  keys.Integer("first_host", &workload->first_host, 0, 1023);
  keys.Integer("tp", &workload->tp, 1, 1024);
  keys.Integer("dp", &workload->dp, 1, 1024);
  keys.Integer("steps", &workload->steps, 1, 100000);
  keys.List("critical_steps", &workload->critical_steps);
  keys.Integer("compute_us", &workload->compute_us, 0, 1000000000);
  keys.Integer("tp_all_reduces", &workload->tp_all_reduces, 0, 1000);
  keys.Integer("streams_at_once", &workload->streams_at_once, 0, 64);
  keys.Integer("tp_bytes", &workload->tp_bytes, 1, kMostBytes);
  keys.Integer("tp_streams", &workload->tp_streams, 1, 64);
  keys.Flag("tp_on_fabric", &workload->tp_on_fabric);
  keys.Integer("tp_us", &workload->tp_us, 0, 1000000000);
  keys.Integer("dp_bytes", &workload->dp_bytes, 1, kMostBytes);
  keys.Integer("dp_streams", &workload->dp_streams, 1, 64);
  keys.Flag("seed_exact", &workload->seed_exact);
  keys.Choice("dp_algorithm", &workload->dp_algorithm, {{"direct", Algorithm::kDirect}, {"ring", Algorithm::kRing}});
  keys.Integer("fan_in", &workload->fan_in, 1, 1023);
  keys.Integer("gradient_skew_us", &workload->gradient_skew_us, 0, 10000000);
  keys.Integer("burst_flows", &workload->burst_flows, 0, 1023);
  keys.Integer("burst_bytes", &workload->burst_bytes, 1, kMostMessageBytes - 1);
  keys.Integer("burst_rank", &workload->burst_rank, 0, 65535);
  keys.Integer("burst_step", &workload->burst_step, 1, 100000);
  keys.Integer("flow_bytes", &workload->flow_bytes, 1, kMostMessageBytes - 1);
}

void PolicyKeys(PolicyPlan* policy, Section keys) {
  keys.Choice("rule", &policy->rule,
              {{"none", LossRule::kNone},
               {"forgive", LossRule::kForgive},
               {"shed", LossRule::kShed},
               {"stop-asking", LossRule::kStopAsking},
               {"close-round", LossRule::kCloseRound},
               {"bound-round", LossRule::kBoundRound},
               {"accept-trims", LossRule::kAcceptTrims}});
  keys.Share("p_low", &policy->p_low);
  keys.Share("p_high", &policy->p_high);
  keys.Share("forgiveness_probability", &policy->forgiveness_probability);
  keys.Flag("vesting", &policy->vesting);
  keys.Share("forgives_from", &policy->forgives_from);
  keys.Choice(
      "exemption", &policy->exemption,
      {{"budget", ExemptionRule::kByBudget}, {"never", ExemptionRule::kOff}, {"always", ExemptionRule::kAlways}});
  keys.Choice("eligible", &policy->eligible, {{"all", Eligible::kAll}, {"reduce", Eligible::kReduce}});
  keys.Integer("shed_marker_bytes", &policy->shed_marker_bytes, 0, 65536);
  keys.Number("close_factor", &policy->close_factor, 0.01, 1000);
  keys.Integer("warm_up_steps", &policy->warm_up_steps, 1, 1000);
}

void TransportKeys(TransportPlan* transport, Section keys) {
  keys.Choice("congestion_control", &transport->congestion_control,
              {{"astra", CongestionControlKind::kDcqcnAstra},
               {"paper", CongestionControlKind::kDcqcnPaper},
               {"nscc", CongestionControlKind::kNscc},
               {"none", CongestionControlKind::kNone}});
  keys.Choice("congestion_restart", &transport->congestion_restart,
              {{"message", CongestionRestart::kAtMessage},
               {"step", CongestionRestart::kAtStep},
               {"never", CongestionRestart::kOff}});
  keys.Integer("congestion_rtt_us", &transport->congestion_rtt_us, 0, 1000000);
  keys.Integer("window_bytes", &transport->window_bytes, 0, 1 << 28);
  keys.Integer("max_payload_bytes", &transport->max_payload_bytes, 64, kMaxPayloadBytes);
  keys.Integer("report_every_packets", &transport->report_every_packets, 1, 1024);
  keys.Choice("recovery", &transport->recovery,
              {{"selective-repeat", Recovery::kSelectiveRepeat}, {"go-back-n", Recovery::kGoBackN}});
  keys.Choice("path_policy", &transport->path_policy,
              {{"single", PathPolicy::kSingle}, {"oblivious", PathPolicy::kOblivious}, {"reps", PathPolicy::kReps}});
  keys.Integer("paths", &transport->paths, 1, kMaxPaths);
  keys.Integer("min_rto_us", &transport->min_rto_us, 1, 10000000);
  keys.Integer("max_rto_us", &transport->max_rto_us, 1, 100000000);
  keys.Flag("rto_backoff", &transport->rto_backoff);
  keys.Integer("pacing_burst_bytes", &transport->pacing_burst_bytes, 0, 1 << 24);
  keys.Flag("last_hop_trims_count", &transport->last_hop_trims_count);
  keys.Choice("ecmp_unit", &transport->ecmp_unit,
              {{"message", EcmpUnit::kMessage}, {"connection", EcmpUnit::kConnection}});
}

void JobKeys(JobPlan* job, std::vector<PlanKey>* keys, const std::string& prefix) {
  WorkloadKeys(&job->workload, Section(keys, prefix + "workload."));
  PolicyKeys(&job->policy, Section(keys, prefix + "policy."));
  TransportKeys(&job->transport, Section(keys, prefix + "transport."));
}

PlanValue ParseValue(const std::string& text) {
  PlanValue value;
  value.text = text;
  int64_t whole = 0;
  double real = 0;
  if (text == "true" || text == "false") {
    value.value = text == "true";
  } else if (ParseNumber(text, &whole)) {
    value.value = whole;
  } else if (ParseNumber(text, &real)) {
    value.value = real;
  } else if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
    std::vector<int64_t> list;
    for (size_t begin = 1; begin < text.size() - 1;) {
      const size_t end = std::min(text.find(',', begin), text.size() - 1);
      std::string item = text.substr(begin, end - begin);
      std::erase(item, ' ');
      if (!ParseNumber(item, &whole)) whole = -1;  // refused by every list
      list.push_back(whole);
      begin = end + 1;
    }
    value.value = list;
  } else {
    value.value = text;
  }
  return value;
}

}  // namespace

std::vector<PlanKey> KeysOf(Plan* plan) {
  std::vector<PlanKey> keys;
  FabricKeys(&plan->fabric, Section(&keys, "fabric."));
  JobKeys(&plan->job, &keys, "");
  if (plan->job2) JobKeys(&*plan->job2, &keys, "job2.");
  return keys;
}

const PlanKey& FindKey(const std::vector<PlanKey>& keys, const std::string& name) {
  const PlanKey* found = nullptr;
  for (const PlanKey& key : keys) {
    if (key.name == name) return key;
    const bool same_end = key.name.ends_with("." + name) && !key.name.starts_with("job2.");
    if (!same_end) continue;
    if (found != nullptr) throw PlanError(fmt::format("key {} is not clear: {} or {}", name, found->name, key.name));
    found = &key;
  }
  if (found != nullptr) return *found;
  const size_t dot = name.rfind('.');
  const std::string section = dot == std::string::npos ? "" : name.substr(0, dot + 1);
  std::vector<std::string> names;
  for (const PlanKey& key : keys) {
    if (key.name.starts_with(section) && key.name.find('.', section.size()) == std::string::npos) {
      names.push_back(key.name.substr(section.size()));
    }
  }
  if (!names.empty()) throw PlanError(fmt::format("unknown key {}: {} has {}", name, section, Joined(names)));
  std::vector<std::string> sections{"fabric",        "workload",    "policy",        "transport",
                                    "job2.workload", "job2.policy", "job2.transport"};
  throw PlanError(fmt::format("unknown key {}: sections are {}", name, Joined(sections)));
}

void SetKey(Plan* plan, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos) {
    throw PlanError(fmt::format("--set {}: write key=value, as in policy.p_high=0.05", assignment));
  }
  const std::string name = assignment.substr(0, equals);
  if (name.starts_with("job2.") && !plan->job2) plan->job2.emplace();
  const std::vector<PlanKey> keys = KeysOf(plan);
  std::string wrong;
  try {
    wrong = FindKey(keys, name).set(ParseValue(assignment.substr(equals + 1)));
  } catch (const PlanError& error) {
    throw PlanError(fmt::format("--set {}: {}", assignment, error.what()));
  }
  if (!wrong.empty()) throw PlanError(fmt::format("--set {}: {}", assignment, wrong));
}

nlohmann::ordered_json ParametersOf(const Plan& plan) {
  Plan copy = plan;
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for (const PlanKey& key : KeysOf(&copy)) all[key.name] = key.get();
  return all;
}

}  // namespace forgive::sim
