// SPDX-License-Identifier: Apache-2.0
// A small ncclNet plugin over loopback TCP, for tests of the harness: versions 6 to 8, or 6 alone.
#include "fake_net.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <set>

#include "testbed/perf/nccl_abi.h"

namespace {

namespace abi = forgive::perf::abi;

constexpr std::size_t kMostRequests = 8;  // few, so that "try again" happens

struct Comm;

struct Request {
  Comm* comm = nullptr;
  char* data = nullptr;
  std::uint32_t posted = 0;
  std::uint32_t bytes = 0;
  std::uint32_t message = 0;
  std::uint32_t header = 0;
  std::size_t moved = 0;  // header included
  bool done = false;
  fake::PostFacts facts;
};

struct Region {
  std::size_t bytes = 0;
};

struct Comm {
  int fd = -1;
  bool sends = false;
  std::set<Request*> requests;  // in flight: NCCL closes with some left after a failure
  std::deque<Request*> queue;
  fake::ReceiveAccount account;
};

struct Handle {
  std::uint16_t port = 0;
};

bool Is(const char* variable, const char* value) {
  const char* const text = std::getenv(variable);
  return text != nullptr && std::strcmp(text, value) == 0;
}

int Init(abi::Logger log) {
  if (Is("FAKE_FAIL", "init")) return abi::kSystemError;
  log(abi::kLogInfo, ~0UL, __FILE__, __LINE__, "NET/FAKE : version %d, loopback", 1);
  return abi::kSuccess;
}

int Devices(int* count) {
  *count = 1;
  return abi::kSuccess;
}

template <typename Properties>
int GetProperties(int, Properties* out) {
  static char name[] = "fake0";
  *out = Properties();
  out->name = name;
  out->pointer_support = abi::kPointerHost;
  out->speed_mbps = 1000;
  out->max_comms = 1024;
  out->max_receives = 1;
  return abi::kSuccess;
}

int Listen(int, void* handle, void** comm) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const made = new Comm;
  made->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  socklen_t length = sizeof(address);
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  if (bind(made->fd, plain, length) != 0 || listen(made->fd, 1) != 0) return abi::kSystemError;
  getsockname(made->fd, plain, &length);
  const Handle written = {address.sin_port};
  std::memcpy(handle, &written, sizeof(written));
  *comm = made;
  return abi::kSuccess;
}

int Connect(int, void* handle, void** comm) {
  // The first call answers "not yet", as a real plugin's does: the mark lies in the handle.
  char* const bytes = static_cast<char*>(handle);
  if (bytes[sizeof(Handle)] == 0) {
    bytes[sizeof(Handle)] = 1;
    *comm = nullptr;
    return abi::kSuccess;
  }
  Handle wanted;
  std::memcpy(&wanted, handle, sizeof(wanted));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = wanted.port;
  auto* const made = new Comm;
  made->sends = true;
  made->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(made->fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return abi::kRemoteError;
  *comm = made;
  return abi::kSuccess;
}

int Accept(void* listen_comm, void** comm) {
  *comm = nullptr;
  const int fd = accept4(static_cast<Comm*>(listen_comm)->fd, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return errno == EAGAIN ? abi::kSuccess : abi::kSystemError;
  static std::uint64_t made_so_far = 0;
  auto* const made = new Comm;
  made->fd = fd;
  made->account.connection_id = static_cast<std::uint64_t>(getpid()) << 32 | ++made_so_far;
  *comm = made;
  return abi::kSuccess;
}

template <typename Size>
int RegisterMemory(void*, void*, Size bytes, int, void** memory) {
  *memory = new Region{static_cast<std::size_t>(bytes)};
  return abi::kSuccess;
}
int RegisterDma(void*, void*, std::size_t, int, std::uint64_t, int, void**) { return abi::kInternalError; }
int Deregister(void*, void* memory) {
  delete static_cast<Region*>(memory);
  return abi::kSuccess;
}

int Advance(Comm& comm) {
  while (!comm.queue.empty()) {
    Request& request = *comm.queue.front();
    const bool in_header = request.moved < sizeof(request.header);
    char* const at = in_header ? reinterpret_cast<char*>(&request.header) + request.moved
                               : request.data + (request.moved - sizeof(request.header));
    const std::size_t end = sizeof(request.header) + (in_header ? 0 : request.header);
    const std::size_t rest = end - request.moved;
    ssize_t count = 0;
    if (rest > 0) {
      count =
          comm.sends ? send(comm.fd, at, rest, MSG_DONTWAIT | MSG_NOSIGNAL) : recv(comm.fd, at, rest, MSG_DONTWAIT);
      if (count < 0 && errno == EAGAIN) return abi::kSuccess;
      if (count <= 0) return abi::kRemoteError;
    }
    request.moved += static_cast<std::size_t>(count);
    if (request.moved >= sizeof(request.header) && request.header > request.posted) return abi::kInternalError;
    if (request.moved < sizeof(request.header) + request.header) continue;
    request.bytes = request.header;
    request.done = true;
    comm.queue.pop_front();
    if (!comm.sends)
      fake::OnArrival(&comm, comm.account, request.facts, request.message, request.data, request.bytes);
  }
  return abi::kSuccess;
}

Request* Make(Comm& comm, void* data, std::uint32_t posted) {
  if (comm.requests.size() == kMostRequests) return nullptr;
  auto* const request = new Request;
  request->comm = &comm;
  request->data = static_cast<char*>(data);
  request->posted = posted;
  comm.requests.insert(request);
  return request;
}

int Isend(void* comm_pointer, void* data, int bytes, int, void*, void** request) {
  Comm& comm = *static_cast<Comm*>(comm_pointer);
  Request* const made = Make(comm, data, static_cast<std::uint32_t>(bytes));
  *request = made;
  if (made == nullptr) return abi::kSuccess;
  made->header = made->posted;
  comm.queue.push_back(made);
  return abi::kSuccess;
}

int Irecv(void* comm_pointer, int count, void** data, int* sizes, int*, void** memories, void** request) {
  // Every other call answers "try again".
  static unsigned calls = 0;
  *request = nullptr;
  if (count != 1) return abi::kInvalidArgument;
  if (++calls % 2 == 0) return abi::kSuccess;
  Comm& comm = *static_cast<Comm*>(comm_pointer);
  Request* const made = Make(comm, data[0], static_cast<std::uint32_t>(sizes[0]));
  if (made == nullptr) return abi::kSuccess;
  made->message = comm.account.messages;
  made->facts = fake::OnPost(comm.account, 4 * std::size_t{made->posted} == static_cast<Region*>(memories[0])->bytes);
  fake::CountPosted(1);
  comm.queue.push_back(made);
  *request = made;
  return abi::kSuccess;
}

int Flush(void*, int, void**, int*, void**, void** request) {
  *request = nullptr;
  return abi::kSuccess;
}

int Test(void* request_pointer, int* done, int* size) {
  auto* const request = static_cast<Request*>(request_pointer);
  Comm& comm = *request->comm;
  if (const int result = Advance(comm); result != abi::kSuccess) return result;
  *done = request->done ? 1 : 0;
  if (!request->done) return abi::kSuccess;
  if (size != nullptr) *size = static_cast<int>(request->bytes);
  if (!comm.sends) fake::CountPosted(-1);
  comm.requests.erase(request);
  delete request;
  return abi::kSuccess;
}

int Close(void* comm_pointer) {
  auto* const comm = static_cast<Comm*>(comm_pointer);
  close(comm->fd);
  for (const Request* request : comm->requests) delete request;
  delete comm;
  return abi::kSuccess;
}

[[maybe_unused]] int ConnectWithHandle(int device, void* handle, void** comm, void**) {
  return Connect(device, handle, comm);
}
[[maybe_unused]] int AcceptWithHandle(void* listen_comm, void** comm, void**) { return Accept(listen_comm, comm); }

}  // namespace

extern "C" {
#define FAKE_EXPORT __attribute__((visibility("default"))) extern const

FAKE_EXPORT abi::TableV6 ncclNetPlugin_v6;
const abi::TableV6 ncclNetPlugin_v6 = {"fake",      Init,       Devices, GetProperties<abi::PropertiesV6>,
                                       Listen,      Connect,    Accept,  RegisterMemory<int>,
                                       RegisterDma, Deregister, Isend,   Irecv,
                                       Flush,       Test,       Close,   Close,
                                       Close};

#ifndef FAKE_NET_ONLY_V6
FAKE_EXPORT abi::TableV7 ncclNetPlugin_v7;
const abi::TableV7 ncclNetPlugin_v7 = {"fake",
                                       Init,
                                       Devices,
                                       GetProperties<abi::PropertiesV7>,
                                       Listen,
                                       ConnectWithHandle,
                                       AcceptWithHandle,
                                       RegisterMemory<int>,
                                       RegisterDma,
                                       Deregister,
                                       Isend,
                                       Irecv,
                                       Flush,
                                       Test,
                                       Close,
                                       Close,
                                       Close,
                                       nullptr,
                                       nullptr};

FAKE_EXPORT abi::TableV8 ncclNetPlugin_v8;
const abi::TableV8 ncclNetPlugin_v8 = {"fake",
                                       Init,
                                       Devices,
                                       GetProperties<abi::PropertiesV8>,
                                       Listen,
                                       ConnectWithHandle,
                                       AcceptWithHandle,
                                       RegisterMemory<std::size_t>,
                                       RegisterDma,
                                       Deregister,
                                       Isend,
                                       Irecv,
                                       Flush,
                                       Test,
                                       Close,
                                       Close,
                                       Close,
                                       nullptr,
                                       nullptr};
#endif
}
