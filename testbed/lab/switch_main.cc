// SPDX-License-Identifier: Apache-2.0
// forgive_lab_switch: loads, pins and attaches the trimming switch in its own network namespace, and writes the log.
//
//   forgive_lab_switch run CONFIG      until SIGTERM; prints "ready true" or "ready virtual" once frames are handled
//   forgive_lab_switch counters PINS   prints the counters of a running switch as JSON
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <net/if.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "testbed/lab/switch_config.h"
#include "testbed/lab/switch_layout.h"

namespace forgive::lab {
namespace {

constexpr long kBpfFileSystemMagic = 0xcafe4a11;
constexpr long kDrainPeriodNs = 10'000'000;  // the log is at most this old
constexpr const char* kKernelFunction = "bpf_cast_to_kern_ctx";

std::string g_library_messages;  // libbpf's last words, shown only when something failed

int KeepMessage(enum libbpf_print_level level, const char* format, va_list arguments) {
  if (level > LIBBPF_WARN) return 0;
  char line[512];
  std::vsnprintf(line, sizeof line, format, arguments);
  if (g_library_messages.size() < 4096) g_library_messages += line;
  return 0;
}

int Fail(const std::string& what) {
  const std::string reason = errno != 0 ? std::string(": ") + std::strerror(errno) : "";
  std::fprintf(stderr, "forgive_lab_switch: %s%s\n%s", what.c_str(), reason.c_str(), g_library_messages.c_str());
  return 1;
}

volatile std::sig_atomic_t g_ended = 0;
void End(int) { g_ended = 1; }

struct ObjectCloser {
  void operator()(bpf_object* object) const { bpf_object__close(object); }
};
using Object = std::unique_ptr<bpf_object, ObjectCloser>;

bool KernelShowsBacklog() {
  btf* kernel = btf__load_vmlinux_btf();
  if (kernel == nullptr) return false;
  const bool found = btf__find_by_name_kind(kernel, kKernelFunction, BTF_KIND_FUNC) > 0;
  btf__free(kernel);
  return found;
}

std::string ObjectPath(const char* name) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) return name;
  const std::string path(self, static_cast<std::size_t>(length));
  return path.substr(0, path.rfind('/') + 1) + name;
}

bool MountPins(const std::string& folder) {
  struct statfs status {};
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
  if (statfs(folder.c_str(), &status) == 0 && status.f_type == kBpfFileSystemMagic) return true;
  return mount("forgive-lab", folder.c_str(), "bpf", 0, "mode=0700") == 0;
}

int MapDescriptor(const Object& object, const char* name) {
  return bpf_object__find_map_fd_by_name(object.get(), name);
}

std::uint64_t AddressKey(const SwitchPort& port) {
  std::uint64_t key = 0;
  for (const std::uint8_t byte : port.host_address) key = key << 8 | byte;
  return key;
}

// The counters of an interface, and its imagined queue where there is one.
bool FillQueue(const Object& object, std::uint32_t ifindex, std::size_t processors) {
  const std::vector<forgive_port_counters> none(processors);
  const int queues = MapDescriptor(object, "virtual_queues");
  const forgive_virtual_queue empty{};
  return ifindex != 0 &&
         bpf_map_update_elem(MapDescriptor(object, "counters"), &ifindex, none.data(), BPF_ANY) == 0 &&
         (queues < 0 || bpf_map_update_elem(queues, &ifindex, &empty, BPF_ANY) == 0);
}

// Fills the maps of a loaded switch; false with errno set if an interface or a map is not there.
bool FillMaps(const Object& object, SwitchConfig* config) {
  const int possible = libbpf_num_possible_cpus();
  if (possible <= 0) return false;
  const auto processors = static_cast<std::size_t>(possible);
  std::uint32_t index = 0;
  for (const SwitchPort& port : config->ports) {
    const std::uint32_t ifindex = if_nametoindex(port.interface.c_str());
    const std::uint64_t key = AddressKey(port);
    if (!FillQueue(object, ifindex, processors) ||
        bpf_map_update_elem(MapDescriptor(object, "addresses"), &key, &ifindex, BPF_ANY) != 0 ||
        bpf_map_update_elem(MapDescriptor(object, "ports"), &index, &ifindex, BPF_ANY) != 0) {
      return false;
    }
    ++index;
  }
  for (const std::string& uplink : config->uplinks) {
    if (!FillQueue(object, if_nametoindex(uplink.c_str()), processors)) return false;
  }
  if (!config->line.empty()) {
    config->parameters.line_ifindex = if_nametoindex(config->line.c_str());
    if (config->parameters.line_ifindex == 0) return false;
  }
  const std::uint32_t zero = 0;
  return bpf_map_update_elem(MapDescriptor(object, "parameters"), &zero, &config->parameters, BPF_ANY) == 0;
}

bool Attach(const Object& object, const std::string& interface, const char* program, bpf_tc_attach_point where) {
  bpf_program* loaded = bpf_object__find_program_by_name(object.get(), program);
  LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = static_cast<int>(if_nametoindex(interface.c_str())),
              .attach_point = static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS));
  const int created = bpf_tc_hook_create(&hook);
  if (created != 0 && created != -EEXIST) {
    errno = -created;
    return false;
  }
  hook.attach_point = where;
  LIBBPF_OPTS(bpf_tc_opts, options, .prog_fd = bpf_program__fd(loaded), .handle = 1, .priority = 1);
  const int attached = bpf_tc_attach(&hook, &options);
  if (attached != 0) errno = -attached;
  return attached == 0;
}

bool AttachAll(const Object& object, const SwitchConfig& config) {
  // Where the kernel routes, a frame enters by a program only to be delayed, and what comes from the line is routed.
  const bool enters = !config.routed || !config.line.empty();
  for (const SwitchPort& port : config.ports) {
    if (!Attach(object, port.interface, "forgive_egress", BPF_TC_EGRESS) ||
        (enters && !Attach(object, port.interface, "forgive_ingress", BPF_TC_INGRESS))) {
      return false;
    }
  }
  for (const std::string& uplink : config.uplinks) {
    if (!Attach(object, uplink, "forgive_egress", BPF_TC_EGRESS)) return false;
  }
  return config.routed || config.line.empty() || Attach(object, config.line, "forgive_line", BPF_TC_INGRESS);
}

int WriteTrim(void* context, void* data, std::size_t size) {
  if (size < sizeof(forgive_trim_record)) return 0;
  const auto* record = static_cast<const forgive_trim_record*>(data);
  char line[80];
  const int length = std::snprintf(line, sizeof line, "trim %016llx %u %u %u\n",
                                   static_cast<unsigned long long>(record->connection_id), record->message_number,
                                   record->offset_in_message, record->payload_length);
  static_cast<std::string*>(context)->append(line, static_cast<std::size_t>(length));
  return 0;
}

// Whole lines in one call each: several switches may append to one log.
bool AppendLines(int log, std::string* lines) {
  const bool done = lines->empty() || write(log, lines->data(), lines->size()) == static_cast<ssize_t>(lines->size());
  lines->clear();
  return done;
}

// Says that the switch is ready, then follows the ring until ended. A look every 10 ms costs less than a wake-up per
// trim.
int FollowTrims(const Object& object, const std::string& path, bool true_backlog) {
  const int log = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (log < 0) return Fail(path);
  std::string lines;
  ring_buffer* ring = ring_buffer__new(MapDescriptor(object, "trims"), WriteTrim, &lines, nullptr);
  if (ring == nullptr) {
    close(log);
    return Fail("the ring of trims");
  }
  std::printf("ready %s\n", true_backlog ? "true" : "virtual");
  std::fflush(stdout);
  bool last = false;
  int code = 0;
  while (!last && code == 0) {
    last = g_ended != 0;  // one more look after the signal
    const timespec pause{0, kDrainPeriodNs};
    if (!last) nanosleep(&pause, nullptr);
    ring_buffer__consume(ring);
    if (!AppendLines(log, &lines)) code = Fail(path);
  }
  ring_buffer__free(ring);
  if (close(log) != 0 && code == 0) code = Fail(path);
  return code;
}

int Run(const std::string& config_path) {
  SwitchConfig config;
  errno = 0;
  const std::string error = ReadSwitchConfig(config_path, &config);
  if (!error.empty()) return Fail(error);
  const bool true_backlog = !config.virtual_queue && KernelShowsBacklog();
  const std::string path = ObjectPath(true_backlog ? "trim.bpf.o" : "trim_virtual.bpf.o");
  errno = 0;
  const Object object(bpf_object__open_file(path.c_str(), nullptr));
  if (object == nullptr) return Fail(path);
  if (bpf_object__load(object.get()) != 0) return Fail(path + " does not load");
  if (!FillMaps(object, &config)) return Fail("the switch's maps");
  if (!MountPins(config.pins)) return Fail(config.pins);
  if (bpf_object__pin_maps(object.get(), config.pins.c_str()) != 0 ||
      bpf_object__pin_programs(object.get(), config.pins.c_str()) != 0) {
    return Fail("pinning into " + config.pins);
  }
  if (!AttachAll(object, config)) return Fail("attaching to a port");
  return FollowTrims(object, config.trims_log, true_backlog);
}

int OpenPin(const std::string& pins, const char* name) { return bpf_obj_get((pins + "/" + name).c_str()); }

void PrintPort(std::uint32_t ifindex, const forgive_port_counters& port, bool first) {
  using Number = unsigned long long;
  std::printf(
      "%s\"%u\": {\"whole\": %llu, \"trimmed\": %llu, \"marked\": %llu, \"control\": %llu, \"other\": %llu, "
      "\"dropped\": %llu, \"gso_refused\": %llu, \"unlogged\": %llu, \"log_lost\": %llu, \"bytes\": %llu}",
      first ? "" : ", ", ifindex, Number{port.whole}, Number{port.trimmed}, Number{port.marked}, Number{port.control},
      Number{port.other}, Number{port.dropped}, Number{port.gso_refused}, Number{port.unlogged},
      Number{port.log_lost}, Number{port.bytes});
}

forgive_port_counters Sum(const std::vector<forgive_port_counters>& parts) {
  forgive_port_counters sum{};
  for (const forgive_port_counters& part : parts) {
    sum.whole += part.whole;
    sum.trimmed += part.trimmed;
    sum.marked += part.marked;
    sum.control += part.control;
    sum.other += part.other;
    sum.dropped += part.dropped;
    sum.gso_refused += part.gso_refused;
    sum.unlogged += part.unlogged;
    sum.log_lost += part.log_lost;
    sum.bytes += part.bytes;
  }
  return sum;
}

int Counters(const std::string& pins) {
  const int counters = OpenPin(pins, "counters");
  const int unknown = OpenPin(pins, "unknown_destination");
  const int processors = libbpf_num_possible_cpus();
  if (counters < 0 || unknown < 0 || processors <= 0) return Fail(pins + " holds no running switch");
  std::vector<forgive_port_counters> parts(static_cast<std::size_t>(processors));
  std::vector<std::uint64_t> unknown_parts(static_cast<std::size_t>(processors));
  std::printf("{\"ports\": {");
  std::uint32_t key = 0;
  const std::uint32_t* previous = nullptr;
  for (std::uint32_t next = 0; bpf_map_get_next_key(counters, previous, &next) == 0; previous = &key) {
    const bool first = previous == nullptr;
    key = next;
    if (bpf_map_lookup_elem(counters, &key, parts.data()) == 0) PrintPort(key, Sum(parts), first);
  }
  const std::uint32_t zero = 0;
  std::uint64_t lost = 0;
  if (bpf_map_lookup_elem(unknown, &zero, unknown_parts.data()) == 0) {
    for (const std::uint64_t part : unknown_parts) lost += part;
  }
  std::printf("}, \"unknown_destination\": %llu}\n", static_cast<unsigned long long>(lost));
  return 0;
}

}  // namespace
}  // namespace forgive::lab

int main(int count, char** arguments) {
  using namespace forgive::lab;
  libbpf_set_print(KeepMessage);
  struct sigaction action {};
  action.sa_handler = End;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  const std::string command = count == 3 ? arguments[1] : "";
  if (command == "run") return Run(arguments[2]);
  if (command == "counters") return Counters(arguments[2]);
  std::fprintf(stderr, "usage: forgive_lab_switch run CONFIG | counters PINS (`lab up` starts it)\n");
  return 2;
}
