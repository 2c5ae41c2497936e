// SPDX-License-Identifier: Apache-2.0
// Loads an ncclNet plugin with dlopen, probes its versions from the highest, and calls it as NCCL does.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <mutex>

#include "testbed/perf/error.h"
#include "testbed/perf/net.h"
#include "testbed/perf/proof_driver.h"
#include "testbed/perf/proxy_idle.h"

namespace forgive::perf {
namespace {

constexpr std::uint64_t kCommunicator = 1;  // the one of this process, from v11 on
constexpr int kLogLinesKept = 32;
constexpr int kWarningsShown = 20;

// NCCL's log function has no context argument, so what the plugin says lands in one place for the process.
struct PluginLog {
  std::mutex mutex;
  std::vector<std::string> info;
  int warnings = 0;
  // While the plugin starts: a warning is the reason of a failure then, and one line is enough.
  bool held = false;
  std::vector<std::string> held_warnings;
};
PluginLog& Log() {
  // Never destroyed: the plugin's threads run on while the process's objects are, and may still have something to
  // say.
  static PluginLog& log = *new PluginLog;
  return log;
}

void ShowWarning(PluginLog& log, const char* text) {
  if (log.warnings++ < kWarningsShown) std::fprintf(stderr, "forgive_perf: plugin warns: %s\n", text);
}

// Holds the plugin's warnings back from now on.
void HoldWarnings() {
  const std::lock_guard<std::mutex> lock(Log().mutex);
  Log().held = true;
}

// Shows what was held back, but after a failure the last: that is returned, for the error to say.
std::string ReleaseWarnings(bool failed) {
  PluginLog& log = Log();
  const std::lock_guard<std::mutex> lock(log.mutex);
  std::string reason;
  if (failed && !log.held_warnings.empty()) {
    reason = ": " + log.held_warnings.back();
    log.held_warnings.pop_back();
  }
  for (const std::string& text : log.held_warnings) ShowWarning(log, text.c_str());
  log.held_warnings.clear();
  log.held = false;
  return reason;
}

__attribute__((format(printf, 5, 6))) void LogFromPlugin(int level, unsigned long, const char*, int,
                                                         const char* format, ...) {
  if (level != abi::kLogWarn && level != abi::kLogInfo) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  PluginLog& log = Log();
  const std::lock_guard<std::mutex> lock(log.mutex);
  if (level == abi::kLogWarn) {
    if (log.held) {
      log.held_warnings.emplace_back(text);
    } else {
      ShowWarning(log, text);
    }
  } else if (log.info.size() < kLogLinesKept) {
    log.info.emplace_back(text);
  }
}

const char* ResultName(int result) {
  switch (result) {
    case 1:
      return "unhandled CUDA error";
    case abi::kSystemError:
      return "system error";
    case abi::kInternalError:
      return "internal error";
    case abi::kInvalidArgument:
      return "invalid argument";
    case 5:
      return "invalid usage";
    case abi::kRemoteError:
      return "remote error";
    default:
      return "unknown error";
  }
}

template <typename Table>
class PluginNet final : public Net {
 public:
  PluginNet(void* library, const Table* table, int device, const CommunicatorFacts& facts)
      : library_(library), table_(table), device_(device), traffic_class_(facts.traffic_class) {
    HoldWarnings();
    const int result = Init(ProofDriver::CallbackFor(facts.proof));
    Check(result, "init", ReleaseWarnings(result != abi::kSuccess));
    if (facts.proof != Proof::kWord) {
      driver_ = std::make_unique<ProofDriver>(library, Table::kVersion, facts, kCommunicator);
    }
    int devices = 0;
    Check(table_->devices(&devices), "devices");
    if (devices <= device_) {
      throw UsageError(
          fmt::format("plugin {} has {} devices: --device {} is not one of them", table_->name, devices, device_));
    }
    typename Table::Properties properties = {};
    Check(table_->get_properties(device_, &properties), "getProperties");
    if ((properties.pointer_support & abi::kPointerHost) == 0) {
      throw RunError(fmt::format("plugin {} takes no host memory", table_->name));
    }
    description_ = fmt::format("{}, API v{}, device {} ({}, {} Mbit/s)", table_->name, Table::kVersion, device_,
                               properties.name != nullptr ? properties.name : "unnamed", properties.speed_mbps);
  }

  // NCCL closes the library with its last communicator; a plugin must survive that, so do the same.
  ~PluginNet() override {
    driver_.reset();
    if constexpr (Table::kVersion >= 11) table_->finalize(context_);
    dlclose(library_);
  }

  std::string Description() const override { return description_; }
  void* Library() const override { return library_; }
  std::vector<std::string> InfoLines() const override {
    PluginLog& log = Log();
    const std::lock_guard<std::mutex> lock(log.mutex);
    return log.info;
  }

  void Listen(Handle& handle, void** listen_comm) override {
    if constexpr (Table::kVersion >= 11) {
      Check(table_->listen(context_, device_, handle.data(), listen_comm), "listen");
    } else {
      Check(table_->listen(device_, handle.data(), listen_comm), "listen");
    }
    if (*listen_comm == nullptr) throw RunError(fmt::format("plugin {}: listen gave no communicator", table_->name));
  }
  void Connect(Handle& handle, void** send_comm) override {
    *send_comm = nullptr;
    void* device_handle = nullptr;
    if constexpr (Table::kVersion == 6) {
      Check(table_->connect(device_, handle.data(), send_comm), "connect");
    } else if constexpr (Table::kVersion < 10) {
      Check(table_->connect(device_, handle.data(), send_comm, &device_handle), "connect");
    } else if constexpr (Table::kVersion == 10) {
      abi::Config config = {traffic_class_};
      Check(table_->connect(device_, &config, handle.data(), send_comm, &device_handle), "connect");
    } else {
      Check(table_->connect(context_, device_, handle.data(), send_comm, &device_handle), "connect");
    }
  }
  void Accept(void* listen_comm, void** receive_comm) override {
    *receive_comm = nullptr;
    if constexpr (Table::kVersion == 6) {
      Check(table_->accept(listen_comm, receive_comm), "accept");
    } else {
      void* device_handle = nullptr;
      Check(table_->accept(listen_comm, receive_comm, &device_handle), "accept");
    }
  }
  void* Register(void* comm, void* data, std::size_t bytes) override {
    void* memory = nullptr;
    if constexpr (Table::kVersion < 8) {
      Check(table_->register_memory(comm, data, AsInt(bytes), abi::kPointerHost, &memory), "regMr");
    } else {
      Check(table_->register_memory(comm, data, bytes, abi::kPointerHost, &memory), "regMr");
    }
    return memory;
  }
  void Deregister(void* comm, void* memory) override { Check(table_->deregister_memory(comm, memory), "deregMr"); }
  void CloseSend(void* comm) override { Check(table_->close_send(comm), "closeSend"); }
  void CloseReceive(void* comm) override { Check(table_->close_receive(comm), "closeRecv"); }
  void CloseListen(void* comm) override { Check(table_->close_listen(comm), "closeListen"); }

  void BeginCollective(const CollectiveFacts& facts) override {
    if (driver_ != nullptr) driver_->BeginCollective(facts);
  }
  void DescribeReceive(std::int64_t message) override {
    if (driver_ == nullptr) return;
    if constexpr (Table::kVersion >= 11) {
      abi::Attributes attributes;
      if (driver_->TakeAttributes(&attributes)) Check(table_->set_attributes(context_, &attributes), "setNetAttr");
    }
    profiler_handle_ = driver_->HandleOf(message);
  }

  void* Isend(void* comm, void* data, std::size_t bytes, int tag, void* memory) override {
    void* request = this;  // as in NCCL, an old pointer may stand here: the plugin must overwrite it
    if constexpr (Table::kVersion >= 10) {
      Check(table_->isend(comm, data, bytes, tag, memory, nullptr, &request), "isend");
    } else if constexpr (Table::kVersion == 9) {
      Check(table_->isend(comm, data, bytes, tag, memory, &request), "isend");
    } else {
      Check(table_->isend(comm, data, AsInt(bytes), tag, memory, &request), "isend");
    }
    return Fresh(request, "isend");
  }
  void* Irecv(void* comm, void* data, std::size_t bytes, int tag, void* memory) override {
    void* request = this;
    if constexpr (Table::kVersion >= 10) {
      Check(table_->irecv(comm, 1, &data, &bytes, &tag, &memory, &profiler_handle_, &request), "irecv");
    } else if constexpr (Table::kVersion == 9) {
      Check(table_->irecv(comm, 1, &data, &bytes, &tag, &memory, &request), "irecv");
    } else {
      int size = AsInt(bytes);
      Check(table_->irecv(comm, 1, &data, &size, &tag, &memory, &request), "irecv");
    }
    return Fresh(request, "irecv");
  }
  bool Test(void* request, std::size_t* bytes) override {
    int done = 0;
    int size = 0;
    Check(table_->test(request, &done, &size), "test");
    if (done == 0) return false;
    if (size < 0) throw RunError(fmt::format("plugin {}: test reports the size {}", table_->name, size));
    *bytes = static_cast<std::size_t>(size);
    return true;
  }

  void Idle(int rounds) override { ProxyIdle(rounds); }

 private:
  int Init([[maybe_unused]] abi::ProfilerCallback callback) {
    if constexpr (Table::kVersion >= 11) {
      abi::Config config = {traffic_class_};
      return table_->init(&context_, kCommunicator, &config, &LogFromPlugin, callback);
    } else if constexpr (Table::kVersion == 10) {
      return table_->init(&LogFromPlugin, callback);
    } else {
      return table_->init(&LogFromPlugin);
    }
  }
  void Check(int result, const char* call, const std::string& reason = "") const {
    if (result == abi::kSuccess) return;
    throw RunError(
        fmt::format("plugin {}: {} failed with {} ({}){}", table_->name, call, ResultName(result), result, reason));
  }
  void* Fresh(void* request, const char* call) const {
    if (request != this) return request;
    throw RunError(fmt::format("plugin {}: {} did not write its request", table_->name, call));
  }
  static int AsInt(std::size_t bytes) { return static_cast<int>(bytes); }

  void* library_;
  void* context_ = nullptr;  // from v11 on
  const Table* table_;
  int device_;
  const int traffic_class_;
  std::unique_ptr<ProofDriver> driver_;  // null: the operator's word
  void* profiler_handle_ = nullptr;      // of the next receive
  std::string description_;
};

template <typename Table>
std::unique_ptr<Net> Probe(void* library, int api, int device, const CommunicatorFacts& facts) {
  if (api != 0 && api != Table::kVersion) return nullptr;
  const std::string symbol = fmt::format("ncclNetPlugin_v{}", Table::kVersion);
  const auto* const table = static_cast<const Table*>(dlsym(library, symbol.c_str()));
  if (table == nullptr) return nullptr;
  return std::make_unique<PluginNet<Table>>(library, table, device, facts);
}

std::string LastLoadError(const std::string& name) {
  const char* const text = dlerror();
  std::string line = text != nullptr ? text : "unknown reason";
  line = line.substr(0, line.find('\n'));
  // The loader passes over a library for another machine as if it were not there.
  const bool there = name.find('/') != std::string::npos && access(name.c_str(), R_OK) == 0;
  if (there && line.ends_with("No such file or directory")) return "it is a library for another kind of machine";
  return line;
}

}  // namespace

std::unique_ptr<Net> LoadPlugin(const std::string& name, int api, int device, const CommunicatorFacts& facts) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  const std::string error = library == nullptr ? LastLoadError(name) : "";
  if (library == nullptr && name.find('/') == std::string::npos) {
    library = dlopen(fmt::format("libnccl-net-{}.so", name).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    throw UsageError(fmt::format(
        "cannot load the plugin {}: {}; give --plugin the path of a plugin's .so, tcp or tcp-threaded", name, error));
  }
  std::unique_ptr<Net> net = Probe<abi::TableV12>(library, api, device, facts);
  if (net == nullptr) net = Probe<abi::TableV11>(library, api, device, facts);
  if (net == nullptr) net = Probe<abi::TableV10>(library, api, device, facts);
  if (net == nullptr) net = Probe<abi::TableV9>(library, api, device, facts);
  if (net == nullptr) net = Probe<abi::TableV8>(library, api, device, facts);
  if (net == nullptr) net = Probe<abi::TableV7>(library, api, device, facts);
  if (net == nullptr) net = Probe<abi::TableV6>(library, api, device, facts);
  if (net == nullptr && api != 0) {
    throw UsageError(
        fmt::format("{} exports no ncclNetPlugin_v{}: leave out --api or name a version it has", name, api));
  }
  if (net == nullptr) {
    throw UsageError(
        fmt::format("{} is a library but no ncclNet plugin of v6 to v12: give --plugin another file", name));
  }
  return net;
}

}  // namespace forgive::perf
