// SPDX-License-Identifier: Apache-2.0
// A fake NCCL: loading, probing, and the calls of the proxy.
#include "fake_nccl.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace forgive::testing {
namespace {

std::mutex log_mutex;
std::vector<std::string> log_lines;

void Logger(int /*level*/, unsigned long /*flags*/, const char* /*file*/, int /*line*/, const char* format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  const std::lock_guard<std::mutex> lock(log_mutex);
  log_lines.push_back(text);
}

template <typename Properties, typename Table>
void FillCommon(const Table* table, Net* net) {
  net->name = table->name;
  net->init = [table] { return table->init(Logger); };
  net->devices = table->devices;
  net->properties = [table](int device, DeviceProperties* out) {
    Properties properties;
    const int result = table->get_properties(device, &properties);
    if (result != 0) return result;
    *out = {.name = properties.name,
            .guid = properties.guid,
            .pointer_support = properties.pointer_support,
            .speed_mbps = properties.speed_mbps,
            .max_comms = properties.max_comms,
            .max_receives = properties.max_receives};
    return result;
  };
  net->listen = table->listen;
  net->register_memory = table->register_memory;
  net->register_dma_buffer = table->register_dma_buffer;
  net->deregister_memory = table->deregister_memory;
  net->send = table->send;
  net->receive = table->receive;
  net->flush = table->flush;
  net->test = table->test;
  net->close_send = table->close_send;
  net->close_receive = table->close_receive;
  net->close_listen = table->close_listen;
}

// From v7 on, connect and accept may also give a device handle: ours must say that there is none.
template <typename Table>
void FillConnect(const Table* table, Net* net) {
  net->connect = [table](int device, void* handle, void** comm) {
    void* device_comm = &device_comm;
    const int result = table->connect(device, handle, comm, &device_comm);
    EXPECT_EQ(device_comm, nullptr);
    return result;
  };
  net->accept = [table](void* listen, void** comm) {
    void* device_comm = &device_comm;
    const int result = table->accept(listen, comm, &device_comm);
    EXPECT_EQ(device_comm, nullptr);
    return result;
  };
}

}  // namespace

int RunInChild(const std::vector<std::pair<std::string, std::string>>& environment,
               const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    setenv("FORGIVE_INTERFACE", "lo", 1);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    body();
    std::fflush(nullptr);
    std::exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

void ExpectInChild(const std::vector<std::pair<std::string, std::string>>& environment,
                   const std::function<void()>& body) {
  const int status = RunInChild(environment, body);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

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

Net Library::Table(int version) const {
  Net net;
  const std::string symbol = "ncclNetPlugin_v" + std::to_string(version);
  const void* table = Symbol(symbol.c_str());
  EXPECT_NE(table, nullptr) << symbol;
  if (version == 6) {
    const auto* v6 = static_cast<const nccl::NetV6*>(table);
    FillCommon<nccl::PropertiesV6>(v6, &net);
    net.connect = v6->connect;
    net.accept = v6->accept;
  } else if (version == 7) {
    const auto* v7 = static_cast<const nccl::NetV7*>(table);
    FillCommon<nccl::PropertiesV7>(v7, &net);
    FillConnect(v7, &net);
  } else {
    const auto* v8 = static_cast<const nccl::NetV8*>(table);
    FillCommon<nccl::PropertiesV8>(v8, &net);
    FillConnect(v8, &net);
  }
  return net;
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
