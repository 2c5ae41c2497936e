// SPDX-License-Identifier: Apache-2.0
// A libibverbs of two devices with three ports, at the offsets of the real one's structures. FAKE_IBVERBS makes it
// refuse (open, device, port), hang (hang) or have nothing (empty).
#include <endian.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

struct FakeDevice {
  const char* name;
  uint64_t guid;
  uint64_t card;
  bool open;
};

FakeDevice devices[] = {{"mlx5_0", 0x0a00000000000001, 0x506b4b0300f48fb2, false},
                        {"mlx5_1", 0x0a00000000000002, 0, false}};
int opened = 0;
int closed = 0;

bool Is(const char* what) {
  const char* const mode = std::getenv("FAKE_IBVERBS");
  return mode != nullptr && std::strcmp(mode, what) == 0;
}

void Put(void* structure, size_t offset, const void* value, size_t bytes) {
  std::memcpy(static_cast<char*>(structure) + offset, value, bytes);
}

}  // namespace

extern "C" {

int fake_ibverbs_opened() { return opened; }
int fake_ibverbs_closed() { return closed; }

FakeDevice** ibv_get_device_list(int* count) {
  while (Is("hang")) pause();
  if (Is("none")) {
    errno = ENOSYS;
    return nullptr;
  }
  *count = Is("empty") ? 0 : 2;
  auto** const list = static_cast<FakeDevice**>(std::calloc(3, sizeof(FakeDevice*)));
  list[0] = &devices[0];
  list[1] = &devices[1];
  return list;
}

void ibv_free_device_list(FakeDevice** list) { std::free(list); }
const char* ibv_get_device_name(FakeDevice* device) { return device->name; }
uint64_t ibv_get_device_guid(FakeDevice* device) { return htobe64(device->guid); }

FakeDevice* ibv_open_device(FakeDevice* device) {
  if (Is("open")) {
    errno = EACCES;
    return nullptr;
  }
  ++opened;
  device->open = true;
  return device;
}

int ibv_close_device(FakeDevice* device) {
  ++closed;
  device->open = false;
  return 0;
}

int ibv_query_device(FakeDevice* device, void* attributes) {
  if (Is("device") || !device->open) return EIO;
  const uint64_t guids[] = {htobe64(device->guid), htobe64(device->card)};
  std::memset(attributes, 0xff, 232);
  Put(attributes, 64, guids, sizeof(guids));
  return 0;
}

int ibv_query_port(FakeDevice* device, uint8_t port, void* attributes) {
  if (Is("port") || !device->open) return EIO;
  if (port == 0 || port > (device == &devices[0] ? 1 : 2)) return EINVAL;
  const bool second = device == &devices[1];
  const int32_t state = second && port == 2 ? 1 : 4;                       // DOWN, ACTIVE
  const uint8_t link[] = {2, static_cast<uint8_t>(second ? 0x80 : 0x20)};  // 4X of NDR, of EDR
  std::memset(attributes, 0xff, 48);
  Put(attributes, 0, &state, sizeof(state));
  Put(attributes, 43, link, sizeof(link));
  return 0;
}
}
