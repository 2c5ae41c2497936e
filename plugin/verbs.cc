// SPDX-License-Identifier: Apache-2.0
// Asks libibverbs for the facts of ports.
#include "plugin/verbs.h"

#include <dlfcn.h>
#include <endian.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "dataplane/thread_signals.h"

namespace forgive {
namespace {

struct VerbsDevice;
struct VerbsContext;

// The entry points, by the version of their symbols: without one the loader may give the first interface, which has
// other structures.
constexpr const char* kVersion = "IBVERBS_1.1";

struct Library {
  VerbsDevice** (*get_device_list)(int* count) = nullptr;
  void (*free_device_list)(VerbsDevice** list) = nullptr;
  const char* (*get_device_name)(VerbsDevice* device) = nullptr;
  uint64_t (*get_device_guid)(VerbsDevice* device) = nullptr;  // big-endian
  VerbsContext* (*open_device)(VerbsDevice* device) = nullptr;
  int (*close_device)(VerbsContext* context) = nullptr;
  int (*query_device)(VerbsContext* context, verbs::DeviceAttributes* out) = nullptr;
  int (*query_port)(VerbsContext* context, uint8_t port, verbs::PortAttributes* out) = nullptr;
};

template <typename Function>
bool Find(void* handle, const char* name, Function* out, std::string* problem) {
  *out = reinterpret_cast<Function>(dlvsym(handle, name, kVersion));
  if (*out == nullptr && problem->empty()) *problem = std::string("it lacks ") + name + " of " + kVersion;
  return *out != nullptr;
}

// Never closed again once it is used: the drivers that it loads refer to it.
bool Open(const std::string& name, Library* out, std::string* problem) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const text = dlerror();
    *problem = text == nullptr ? "it cannot be loaded" : text;
    return false;
  }
  const bool found = Find(handle, "ibv_get_device_list", &out->get_device_list, problem) &&
                     Find(handle, "ibv_free_device_list", &out->free_device_list, problem) &&
                     Find(handle, "ibv_get_device_name", &out->get_device_name, problem) &&
                     Find(handle, "ibv_get_device_guid", &out->get_device_guid, problem) &&
                     Find(handle, "ibv_open_device", &out->open_device, problem) &&
                     Find(handle, "ibv_close_device", &out->close_device, problem) &&
                     Find(handle, "ibv_query_device", &out->query_device, problem) &&
                     Find(handle, "ibv_query_port", &out->query_port, problem);
  if (!found) dlclose(handle);
  return found;
}

std::string Refused(const char* call, int error) {
  return std::string(call) + ": " + (error == 0 ? "refused" : std::strerror(error));
}

PortFacts AskPort(const Library& library, VerbsDevice* device, uint32_t port) {
  PortFacts facts;
  errno = 0;
  VerbsContext* const context = library.open_device(device);
  if (context == nullptr) {
    facts.problem = Refused("ibv_open_device", errno);
    return facts;
  }
  verbs::DeviceAttributes card{};
  verbs::PortAttributes attributes{};
  if (const int error = library.query_device(context, &card); error != 0) {
    facts.problem = Refused("ibv_query_device", error);
  } else if (const int refused = library.query_port(context, static_cast<uint8_t>(port), &attributes); refused != 0) {
    facts.problem = Refused("ibv_query_port", refused);
  } else {
    facts.state = attributes.state == verbs::kPortActive ? PortState::kActive : PortState::kNotActive;
    facts.speed_mbps = LinkSpeedMbps(attributes.active_width, attributes.active_speed);
    facts.speed_at_field_limit = (attributes.active_speed & 0x80) != 0;
    facts.guid = be64toh(card.system_image_guid != 0 ? card.system_image_guid : library.get_device_guid(device));
  }
  library.close_device(context);
  return facts;
}

std::vector<PortFacts> AllWith(size_t count, const std::string& problem) {
  PortFacts unknown;
  unknown.problem = problem;
  return std::vector<PortFacts>(count, unknown);
}

std::vector<PortFacts> Ask(const std::string& name, const std::vector<RdmaPort>& ports) {
  Library library;
  std::string problem;
  if (!Open(name, &library, &problem)) return AllWith(ports.size(), problem);
  int count = 0;
  errno = 0;
  VerbsDevice** const list = library.get_device_list(&count);
  if (list == nullptr) return AllWith(ports.size(), Refused("ibv_get_device_list", errno));
  std::vector<PortFacts> facts;
  for (const RdmaPort& port : ports) {
    VerbsDevice** const end = list + count;
    VerbsDevice** const found =
        std::find_if(list, end, [&](VerbsDevice* device) { return port.device == library.get_device_name(device); });
    facts.push_back(found != end ? AskPort(library, *found, port.number) : AllWith(1, "it has no such device")[0]);
  }
  library.free_device_list(list);
  return facts;
}

// Between who asks and who waits; the one that comes last frees it.
struct Answer {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::vector<PortFacts> facts;
};

}  // namespace

uint32_t LinkSpeedMbps(uint8_t active_width, uint8_t active_speed) {
  // By the number of the only bit that is set: SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR.
  constexpr std::array<uint32_t, 8> kLaneMbps = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000};
  constexpr std::array<uint32_t, 5> kLanes = {1, 4, 8, 12, 2};
  if (!std::has_single_bit(active_width) || !std::has_single_bit(active_speed)) return 0;
  const auto lanes = static_cast<size_t>(std::countr_zero(active_width));
  return lanes < kLanes.size() ? kLanes[lanes] * kLaneMbps[static_cast<size_t>(std::countr_zero(active_speed))] : 0;
}

std::vector<PortFacts> AskVerbs(const std::string& library, const std::vector<RdmaPort>& ports,
                                std::chrono::milliseconds patience) {
  const auto answer = std::make_shared<Answer>();
  const auto ask = [answer, library, ports] {
    std::vector<PortFacts> facts;
    try {
      facts = Ask(library, ports);
    } catch (const std::bad_alloc&) {
      // Then there are no facts.
    }
    const std::lock_guard<std::mutex> lock(answer->mutex);
    answer->facts = std::move(facts);
    answer->done = true;
    answer->changed.notify_one();
  };
  try {
    const BlockedSignals blocked;
    std::thread(ask).detach();
  } catch (const std::system_error&) {
    return AllWith(ports.size(), "no thread could be started to ask it");
  }
  std::unique_lock<std::mutex> lock(answer->mutex);
  const bool answered = answer->changed.wait_for(lock, patience, [&] { return answer->done; });
  if (!answered) {
    return AllWith(ports.size(), "no answer within " + std::to_string(patience.count()) + " ms");
  }
  return answer->facts.size() == ports.size() ? std::move(answer->facts)
                                              : AllWith(ports.size(), "no memory was left to ask it");
}

}  // namespace forgive
