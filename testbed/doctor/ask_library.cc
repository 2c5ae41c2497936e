// SPDX-License-Identifier: Apache-2.0
// Opens a plugin's library as NCCL does, lists what it exports, and calls its init.
#include "testbed/doctor/ask_library.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "testbed/doctor/bounded.h"
#include "testbed/doctor/host.h"

namespace forgive::doctor {
namespace {

constexpr size_t kMostLines = 200;
constexpr int kMostDevices = 64;
constexpr int kLogWarn = 2;
constexpr int kLogInfo = 3;
constexpr size_t kMostStatisticsBytes = 1 << 20;
constexpr size_t kPropertiesRoomBytes = 1024;  // far more than any version's structure
// A folder that exists nowhere, below which nothing can be made.
constexpr const char* kNoFolder = "/proc/self/no-such-folder/";

constexpr const char* kStatistics = "FORGIVE_STATS";

using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

// What the tables of all versions begin with; init differs, see CallInit.
struct TableHead {
  const char* name;
  void (*init)();
  int (*devices)(int* count);
  int (*get_properties)(int device, void* properties);
};

// v11 and later: what init is told about the communicator.
struct CommunicatorConfig {
  int traffic_class;
};
constexpr int kUndefined = INT_MIN;

std::vector<InitLine>& Lines() {
  static std::vector<InitLine> lines;
  return lines;
}

__attribute__((format(printf, 5, 6))) void KeepLine(int level, unsigned long, const char*, int, const char* format,
                                                    ...) {
  if ((level != kLogWarn && level != kLogInfo) || Lines().size() >= kMostLines) return;
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  std::string line = text;
  constexpr std::string_view kPrefix = "NET/FORGIVE : ";
  if (line.starts_with(kPrefix)) line.erase(0, kPrefix.size());
  Lines().push_back({level == kLogWarn, line});
}

int NoProfiler(void**, int, void*, int64_t, void*) { return 0; }

int CallInit(const TableHead& table, int version) {
  using Profiler = int (*)(void**, int, void*, int64_t, void*);
  if (version >= 11) {
    using InitOfCommunicator = int (*)(void**, uint64_t, CommunicatorConfig*, Logger, Profiler);
    static CommunicatorConfig config{kUndefined};
    void* context = nullptr;
    return reinterpret_cast<InitOfCommunicator>(table.init)(&context, 1, &config, KeepLine, NoProfiler);
  }
  if (version == 10) return reinterpret_cast<int (*)(Logger, Profiler)>(table.init)(KeepLine, NoProfiler);
  return reinterpret_cast<int (*)(Logger)>(table.init)(KeepLine);
}

int ThreadCount() {
  DIR* const folder = opendir("/proc/self/task");
  if (folder == nullptr) return 0;
  int count = 0;
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(folder);
  return count;
}

std::vector<int> Exported(void* library, const char* prefix, int first, int last) {
  std::vector<int> versions;
  for (int version = first; version <= last; ++version) {
    if (dlsym(library, fmt::format("{}{}", prefix, version).c_str()) != nullptr) versions.push_back(version);
  }
  return versions;
}

std::string LoaderError() {
  const char* const error = dlerror();
  const std::string text = error == nullptr ? "unknown reason" : error;
  return text.substr(0, text.find('\n'));
}

std::string FileOf(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return "";
  char resolved[PATH_MAX];
  return realpath(map->l_name, resolved) == nullptr ? map->l_name : resolved;
}

Json Inspect(const std::string& name) {
  Json facts;
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  facts["loads"] = library != nullptr;
  if (library == nullptr) {
    facts["problem"] = LoaderError();
    return facts;
  }
  facts["file"] = FileOf(library);
  facts["threads"] = ThreadCount();
  const std::vector<int> net = Exported(library, "ncclNetPlugin_v", kFirstNet, kLastNet);
  facts["net"] = net;
  facts["tuner"] = Exported(library, "ncclTunerPlugin_v", 1, 6);
  facts["profiler"] = Exported(library, "ncclProfiler_v", 1, 7);
  facts["is_forgive"] = dlsym(library, "forgive_stats") != nullptr;
  facts["name"] = "";
  if (!net.empty()) {
    const auto* table =
        static_cast<const TableHead*>(dlsym(library, fmt::format("ncclNetPlugin_v{}", net.back()).c_str()));
    facts["name"] = table->name == nullptr ? "" : table->name;
  }
  return facts;
}

Json Initialise(const std::string& file, int version) {
  Json facts;
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto* table =
      library == nullptr
          ? nullptr
          : static_cast<const TableHead*>(dlsym(library, fmt::format("ncclNetPlugin_v{}", version).c_str()));
  if (table == nullptr) throw std::runtime_error(fmt::format("ncclNetPlugin_v{}: {}", version, LoaderError()));
  facts["result"] = CallInit(*table, version);
  facts["devices"] = Json::array();
  int count = 0;
  if (facts["result"] == 0 && table->devices(&count) == 0) {
    for (int device = 0; device < std::min(count, kMostDevices); ++device) {
      alignas(16) static char properties[kPropertiesRoomBytes];
      if (table->get_properties(device, properties) != 0) continue;
      const char* const name = *reinterpret_cast<const char* const*>(properties);  // the first member in all versions
      facts["devices"].push_back(name == nullptr ? "" : name);
    }
  }
  facts["lines"] = Json::array();
  for (const InitLine& line : Lines()) facts["lines"].push_back({line.warning, line.text});
  return facts;
}

void Change(const std::vector<std::pair<std::string, std::string>>& changes) {
  for (const auto& [name, value] : changes) {
    if (value.empty()) {
      unsetenv(name.c_str());
    } else {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
}

// What stands before the first end of a line, as JSON; null: nothing that is whole.
Json FirstLine(int fd) {
  std::string text(kMostStatisticsBytes, '\0');
  const ssize_t count = pread(fd, text.data(), text.size(), 0);
  const size_t end = count < 0 ? std::string::npos : text.substr(0, static_cast<size_t>(count)).find('\n');
  return end == std::string::npos ? Json() : Json::parse(text.substr(0, end), nullptr, false);
}

// With its slash; empty without one.
std::string FolderOf(const std::string& file) { return file.substr(0, file.rfind('/') + 1); }

// The child writes no file, but a name that the library would refuse is still refused.
void KeepFilesAway() {
  if (const std::string name = Variable(kStatistics); !name.empty()) {
    setenv(kStatistics, (kNoFolder + name.substr(FolderOf(name).size())).c_str(), 1);
  }
  if (!Variable("FORGIVE_FAULT_LOG").empty()) setenv("FORGIVE_FAULT_LOG", "/dev/null", 1);
}

}  // namespace

LibraryFacts InspectLibrary(const std::string& name, std::chrono::milliseconds limit) {
  LibraryFacts facts;
  const BoundedAnswer answer = AskBounded(limit, [&] { return Inspect(name); });
  if (!answer.ok) {
    facts.problem = fmt::format("{}: opening it {}", name, answer.problem);
    return facts;
  }
  const Json& value = answer.value;
  facts.loads = value["loads"].get<bool>();
  if (!facts.loads) {
    facts.problem = value["problem"].get<std::string>();
    return facts;
  }
  facts.file = value["file"].get<std::string>();
  facts.name = value["name"].get<std::string>();
  facts.net = value["net"].get<std::vector<int>>();
  facts.tuner = value["tuner"].get<std::vector<int>>();
  facts.profiler = value["profiler"].get<std::vector<int>>();
  facts.is_forgive = value["is_forgive"].get<bool>();
  facts.threads = value["threads"].get<int>();
  return facts;
}

LibraryFacts InspectPluginEntry(const std::string& entry, std::chrono::milliseconds limit) {
  const LibraryFacts as_it_stands = InspectLibrary(entry, limit);
  if (as_it_stands.loads || entry.find('/') != std::string::npos) return as_it_stands;
  const LibraryFacts by_name = InspectLibrary(fmt::format("libnccl-net-{}.so", entry), limit);
  return by_name.loads ? by_name : as_it_stands;
}

InitFacts AskInit(const std::string& file, int version, std::chrono::milliseconds limit,
                  const std::vector<std::pair<std::string, std::string>>& changes) {
  InitFacts facts;
  const BoundedAnswer answer = AskBounded(limit, [&] {
    Change(changes);
    KeepFilesAway();
    return Initialise(file, version);
  });
  facts.answered = answer.ok;
  facts.problem = answer.problem;
  if (!answer.ok) return facts;
  facts.result = answer.value["result"].get<int>();
  facts.devices = answer.value["devices"].get<std::vector<std::string>>();
  for (const Json& line : answer.value["lines"]) {
    std::string text = line[1].get<std::string>();
    const size_t replaced = text.find(kNoFolder);
    // That the file could not be made is what was wanted; that its name was refused is the user's to know.
    if (replaced != std::string::npos && facts.result == 0) continue;
    if (replaced != std::string::npos)
      text.replace(replaced, std::strlen(kNoFolder), FolderOf(Variable(kStatistics)));
    facts.lines.push_back({line[0].get<bool>(), text});
  }
  return facts;
}

Json AskInForce(const std::string& file, int version, std::chrono::milliseconds limit,
                const std::vector<std::pair<std::string, std::string>>& changes) {
  const BoundedAnswer answer = AskBounded(limit, [&] {
    Change(changes);
    KeepFilesAway();
    const int memory = memfd_create("statistics", MFD_CLOEXEC);
    setenv(kStatistics, fmt::format("/proc/self/fd/{}", memory).c_str(), 1);
    (void)Initialise(file, version);
    return FirstLine(memory);
  });
  return answer.ok && answer.value.is_object() ? answer.value : Json::object();
}

int HighestNetVersion(int nccl_version) {
  // NCCL counts major * 10000 + minor * 100 + patch since 2.9.
  if (nccl_version >= 23000) return 12;
  if (nccl_version >= 22800) return 11;
  if (nccl_version >= 22600) return 10;
  if (nccl_version >= 22400) return 9;
  if (nccl_version >= 22000) return 8;
  if (nccl_version >= 21900) return 7;
  return nccl_version >= 21300 ? 6 : 0;
}

int NetVersionInUse(const Context& context) {
  const int most = context.nccl_versions.empty() ? kLastNet : HighestNetVersion(context.nccl_versions.front());
  int in_use = 0;
  for (const int version : context.net_versions) {
    if (version >= kFirstCallable && version <= most) in_use = version;
  }
  return in_use;
}

std::string NcclVersionText(int nccl_version) {
  return fmt::format("{}.{}.{}", nccl_version / 10000, nccl_version / 100 % 100, nccl_version % 100);
}

}  // namespace forgive::doctor
