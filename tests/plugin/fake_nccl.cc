// SPDX-License-Identifier: Apache-2.0
// A fake NCCL: loading, probing, and the calls of the proxy.
#include "fake_nccl.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <type_traits>

namespace forgive::testing {
namespace {

std::mutex log_mutex;
std::vector<std::string> log_lines;
thread_local bool logs = false;

void Logger(int /*level*/, unsigned long /*flags*/, const char* /*file*/, int /*line*/, const char* format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  const std::lock_guard<std::mutex> lock(log_mutex);
  logs = true;
  log_lines.push_back(text);
  logs = false;
}

std::string WholeFile(int file) {
  std::string text;
  char part[4096];
  ssize_t got = 0;
  while ((got = pread(file, part, sizeof(part), static_cast<off_t>(text.size()))) > 0)
    text.append(part, static_cast<size_t>(got));
  return text;
}

// A sanitizer's report is long, and its beginning says the most; of log lines the last ones do.
std::string Shortened(const std::string& text) {
  constexpr size_t kShown = 3000;
  if (text.size() <= 2 * kShown) return text;
  return text.substr(0, kShown) + "\n[...]\n" + text.substr(text.size() - kShown);
}

template <typename Properties>
int ReadProperties(int (*get)(int, Properties*), int device, DeviceProperties* out) {
  Properties properties;
  std::memset(&properties, 0x7e, sizeof(properties));
  const int result = get(device, &properties);
  if (result != 0) return result;
  *out = {};
  out->name = properties.name;
  out->guid = properties.guid;
  out->pointer_support = properties.pointer_support;
  out->speed_mbps = properties.speed_mbps;
  out->max_comms = properties.max_comms;
  out->max_receives = properties.max_receives;
  if constexpr (requires { properties.merged; }) {
    EXPECT_EQ(properties.merged.devices[0], device);
    out->merged_devices = properties.merged.count;
    out->max_bytes = std::min(properties.max_point_to_point_bytes, properties.max_collective_bytes);
  }
  if constexpr (requires { properties.max_multi_request; }) {
    EXPECT_EQ(properties.max_multi_request, 1);
  }
  if constexpr (requires { properties.rail_id; }) {
    EXPECT_EQ(properties.rail_id, nccl::kNoId);
    EXPECT_EQ(properties.plane_id, nccl::kNoId);
  }
  return result;
}

template <typename Properties, typename Table>
void FillCommon(const Table* table, Net* net) {
  net->name = table->name;
  net->devices = table->devices;
  net->properties = [table](int device, DeviceProperties* out) {
    return ReadProperties<Properties>(table->get_properties, device, out);
  };
  net->register_memory = table->register_memory;
  net->register_dma_buffer = table->register_dma_buffer;
  net->deregister_memory = table->deregister_memory;
  net->flush = table->flush;
  net->test = table->test;
  net->close_send = table->close_send;
  net->close_receive = table->close_receive;
  net->close_listen = table->close_listen;
}

// From v7 on, accept may also give a device handle: ours must say that there is none.
template <typename Table>
void FillAccept(const Table* table, Net* net) {
  net->accept = [table](void* listen, void** comm) {
    void* device_comm = &device_comm;
    const int result = table->accept(listen, comm, &device_comm);
    EXPECT_EQ(device_comm, nullptr);
    return result;
  };
}

// The calls as they are up to v9: no context, no configuration.
template <typename Table>
void FillPlain(const Table* table, Net* net) {
  net->init = [table] { return table->init(Logger); };
  net->listen = table->listen;
  if constexpr (requires { table->get_device_memory; }) {
    FillAccept(table, net);
    net->connect = [table](int device, void* handle, void** comm) {
      void* device_comm = &device_comm;
      const int result = table->connect(device, handle, comm, &device_comm);
      EXPECT_EQ(device_comm, nullptr);
      return result;
    };
  } else {
    net->connect = table->connect;
    net->accept = table->accept;
  }
}

// Data calls with int sizes, up to v8.
template <typename Table>
void FillIntSizes(const Table* table, Net* net) {
  net->send = table->send;
  net->receive = table->receive;
}

// NCCL presets the request of a receive whose completion it can do without.
void PresetRequest(const NcclCommunicator& communicator, void** request) {
  if (communicator.optional_completion) *request = reinterpret_cast<void*>(nccl::kOptionalCompletion);
}

// With size_t sizes, from v9 on.
template <typename Table>
void FillLongSizes(const Table* table, Net* net) {
  const auto communicator = net->communicator;
  net->send = [table, communicator](void* comm, void* data, int size, int tag, void* memory, void** request) {
    const auto bytes = static_cast<size_t>(size);
    if constexpr (std::is_same_v<Table, nccl::NetV9>) {
      return table->send(comm, data, bytes, tag, memory, request);
    } else {
      return table->send(comm, data, bytes, tag, memory, communicator->profiler_handle, request);
    }
  };
  net->receive = [table, communicator](void* comm, int n, void** data, int* sizes, int* tags, void** memory,
                                       void** request) {
    std::vector<size_t> bytes(sizes, sizes + n);
    PresetRequest(*communicator, request);
    if constexpr (std::is_same_v<Table, nccl::NetV9>) {
      return table->receive(comm, n, data, bytes.data(), tags, memory, request);
    } else {
      std::vector<void*> handles(static_cast<size_t>(n), communicator->profiler_handle);
      return table->receive(comm, n, data, bytes.data(), tags, memory, handles.data(), request);
    }
  };
}

void FillV10(const nccl::NetV10* table, Net* net) {
  const auto communicator = net->communicator;
  net->init = [table, communicator] { return table->init(Logger, communicator->profiler); };
  net->listen = table->listen;
  net->connect = [table, communicator](int device, void* handle, void** comm) {
    void* device_comm = &device_comm;
    nccl::CommunicatorConfig config{communicator->traffic_class};
    const int result = table->connect(device, &config, handle, comm, &device_comm);
    EXPECT_EQ(device_comm, nullptr);
    return result;
  };
}

template <typename Table>
void FillWithContext(const Table* table, Net* net) {
  const auto communicator = net->communicator;
  net->init = [table, communicator] {
    nccl::CommunicatorConfig config{communicator->traffic_class};
    return table->init(&communicator->context, communicator->comm_id, &config, Logger, communicator->profiler);
  };
  net->finalize = [table, communicator] { return table->finalize(communicator->context); };
  net->set_attributes = [table, communicator](const nccl::Attributes* attributes) {
    nccl::Attributes copy = *attributes;
    return table->set_attributes(communicator->context, &copy);
  };
  net->listen = [table, communicator](int device, void* handle, void** comm) {
    return table->listen(communicator->context, device, handle, comm);
  };
  net->connect = [table, communicator](int device, void* handle, void** comm) {
    void* device_comm = &device_comm;
    const int result = table->connect(communicator->context, device, handle, comm, &device_comm);
    EXPECT_EQ(device_comm, nullptr);
    return result;
  };
}

template <typename Table, typename Properties>
Net Fill(const void* symbol, Net net) {
  const auto* table = static_cast<const Table*>(symbol);
  FillCommon<Properties>(table, &net);
  if constexpr (requires { table->make_virtual_device; }) {
    FillLongSizes(table, &net);
    EXPECT_EQ(table->make_virtual_device, nullptr) << "NCCL would merge devices";
  } else {
    FillIntSizes(table, &net);
  }
  if constexpr (requires { table->finalize; }) {
    FillWithContext(table, &net);
    FillAccept(table, &net);
  } else if constexpr (std::is_same_v<Table, nccl::NetV10>) {
    FillV10(table, &net);
    FillAccept(table, &net);
  } else {
    FillPlain(table, &net);
  }
  return net;
}

}  // namespace

int RunInChild(const std::vector<std::pair<std::string, std::string>>& environment, const std::function<void()>& body,
               std::string* said) {
  std::fflush(nullptr);
  // In memory, so that also what a sanitizer says before it ends the child is kept.
  const int memory = memfd_create("standard error", MFD_CLOEXEC);
  EXPECT_GE(memory, 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(memory, STDERR_FILENO);
    setenv("FORGIVE_INTERFACE", "lo", 1);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    body();
    std::fflush(nullptr);
    std::exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (said != nullptr) *said = WholeFile(memory);
  close(memory);
  return status;
}

void ExpectInChild(const std::vector<std::pair<std::string, std::string>>& environment,
                   const std::function<void()>& body) {
  std::string said;
  const int status = RunInChild(environment, body, &said);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status) << "; it said:\n" << Shortened(said);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "it said:\n" << Shortened(said);
}

bool InLogger() { return logs; }

std::vector<std::string> LogLines() {
  const std::lock_guard<std::mutex> lock(log_mutex);
  return log_lines;
}

bool LogContains(const std::string& text) {
  for (const std::string& line : LogLines()) {
    if (line.find(text) != std::string::npos) return true;
  }
  return false;
}

void ClearLog() {
  const std::lock_guard<std::mutex> lock(log_mutex);
  log_lines.clear();
}

Library::Library() : handle_(dlopen(FORGIVE_PLUGIN_FILE, RTLD_NOW | RTLD_LOCAL)) {
  EXPECT_NE(handle_, nullptr) << dlerror();
}

Library::~Library() { EXPECT_EQ(dlclose(handle_), 0); }

void* Library::Symbol(const char* name) const { return dlsym(handle_, name); }

Net Library::Table(int version, uint64_t comm_id, int traffic_class) const {
  Net net;
  net.version = version;
  net.communicator = std::make_shared<NcclCommunicator>();
  net.communicator->comm_id = comm_id;
  net.communicator->traffic_class = traffic_class;
  const std::string name = "ncclNetPlugin_v" + std::to_string(version);
  const void* table = Symbol(name.c_str());
  EXPECT_NE(table, nullptr) << name;
  switch (version) {
    case 6:
      return Fill<nccl::NetV6, nccl::PropertiesV6>(table, net);
    case 7:
      return Fill<nccl::NetV7, nccl::PropertiesV7>(table, net);
    case 8:
      return Fill<nccl::NetV8, nccl::PropertiesV8>(table, net);
    case 9:
      return Fill<nccl::NetV9, nccl::PropertiesV9>(table, net);
    case 10:
      return Fill<nccl::NetV10, nccl::PropertiesV9>(table, net);
    case 11:
      return Fill<nccl::NetV11, nccl::PropertiesV11>(table, net);
    default:
      return Fill<nccl::NetV12, nccl::PropertiesV12>(table, net);
  }
}

bool PollUntil(const std::function<bool()>& poll, int seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!poll()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

void Connect(const Net& net, void** send_comm, void** receive_comm) {
  alignas(8) char handle[nccl::kHandleBytes];
  void* listen_comm = nullptr;
  ASSERT_EQ(net.listen(0, handle, &listen_comm), nccl::kSuccess);
  *send_comm = nullptr;
  *receive_comm = nullptr;
  const bool connected = PollUntil([&] {
    if (*send_comm == nullptr) {
      EXPECT_EQ(net.connect(0, handle, send_comm), nccl::kSuccess);
    }
    if (*receive_comm == nullptr) {
      EXPECT_EQ(net.accept(listen_comm, receive_comm), nccl::kSuccess);
    }
    return ::testing::Test::HasFailure() || (*send_comm != nullptr && *receive_comm != nullptr);
  });
  ASSERT_TRUE(connected);
  ASSERT_EQ(net.close_listen(listen_comm), nccl::kSuccess);
}

Pair MakePair(const Net& net, size_t buffer_bytes) {
  Pair pair;
  Connect(net, &pair.send_comm, &pair.receive_comm);
  pair.source.resize(buffer_bytes);
  pair.destination.resize(buffer_bytes);
  EXPECT_EQ(
      net.register_memory(pair.send_comm, pair.source.data(), buffer_bytes, nccl::kPointerHost, &pair.source_handle),
      nccl::kSuccess);
  EXPECT_EQ(net.register_memory(pair.receive_comm, pair.destination.data(), buffer_bytes, nccl::kPointerHost,
                                &pair.destination_handle),
            nccl::kSuccess);
  return pair;
}

void ClosePair(const Net& net, Pair* pair) {
  EXPECT_EQ(net.deregister_memory(pair->send_comm, pair->source_handle), nccl::kSuccess);
  EXPECT_EQ(net.deregister_memory(pair->receive_comm, pair->destination_handle), nccl::kSuccess);
  EXPECT_EQ(net.close_send(pair->send_comm), nccl::kSuccess);
  EXPECT_EQ(net.close_receive(pair->receive_comm), nccl::kSuccess);
}

int Wait(const Net& net, void* request, int* size) {
  int result = nccl::kSuccess;
  int done = 0;
  const bool ended = PollUntil([&] {
    result = net.test(request, &done, size);
    return result != nccl::kSuccess || done != 0;
  });
  EXPECT_TRUE(ended) << "a request that never completes";
  return result;
}

int Send(const Net& net, const Pair& pair, size_t offset, int bytes, void** request) {
  int result = nccl::kSuccess;
  EXPECT_TRUE(PollUntil([&] {
    auto* data = const_cast<uint8_t*>(pair.source.data()) + offset;
    result = net.send(pair.send_comm, data, bytes, 0, pair.source_handle, request);
    return result != nccl::kSuccess || *request != nullptr;
  }));
  return result;
}

int Receive(const Net& net, Pair* pair, size_t offset, int bytes, void** request) {
  int result = nccl::kSuccess;
  EXPECT_TRUE(PollUntil([&] {
    void* data = pair->destination.data() + offset;
    int tag = 0;
    result = net.receive(pair->receive_comm, 1, &data, &bytes, &tag, &pair->destination_handle, request);
    return result != nccl::kSuccess || *request != nullptr;
  }));
  return result;
}

void FillPattern(std::vector<uint8_t>* bytes, uint64_t seed) {
  uint64_t state = seed;
  for (uint8_t& byte : *bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    // Never zero, so that a zero-filled byte is always seen.
    byte = static_cast<uint8_t>(1 + (state >> 33) % 255);
  }
}

}  // namespace forgive::testing
