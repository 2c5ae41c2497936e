// SPDX-License-Identifier: Apache-2.0
// A net plugin that misbehaves as FAKE_PLUGIN says: hang-load, crash-load, hang-init, crash-init, loud, orphan.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

bool Is(const char* what) {
  const char* const mode = std::getenv("FAKE_PLUGIN");
  return mode != nullptr && std::strcmp(mode, what) == 0;
}

// A process of the library's own that outlives its parent, and says where it is.
void LeaveOrphan() {
  const pid_t child = fork();
  if (child != 0) {
    while (access(std::getenv("FAKE_PLUGIN_PID"), F_OK) != 0) usleep(1000);
    return;
  }
  // Under its name only once it is whole: this process may be killed at any moment.
  const std::string name = std::getenv("FAKE_PLUGIN_PID");
  const std::string unfinished = name + "." + std::to_string(getpid());
  if (std::FILE* const file = std::fopen(unfinished.c_str(), "w")) {
    std::fprintf(file, "%d\n", static_cast<int>(getpid()));
    std::fclose(file);
    std::rename(unfinished.c_str(), name.c_str());
  }
  while (true) pause();
}

__attribute__((constructor)) void OnLoad() {
  while (Is("hang-load")) pause();
  if (Is("crash-load")) std::abort();
  if (Is("orphan")) LeaveOrphan();
}

using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

int Init(Logger logger) {
  while (Is("hang-init")) pause();
  if (Is("crash-init")) {
    std::fprintf(stderr, "the last words\n");
    std::abort();
  }
  for (int i = 0; Is("loud") && i < 100000; ++i) logger(2, 0x10, "fake", 1, "line %d of many", i);
  return 0;
}

int Devices(int* count) {
  *count = 0;
  return 0;
}

int GetProperties(int, void*) { return 3; }

}  // namespace

extern "C" {
struct __attribute__((visibility("default"))) FakeTable {
  const char* name;
  int (*init)(Logger logger);
  int (*devices)(int* count);
  int (*get_properties)(int device, void* properties);
  void* rest[15];
};
extern __attribute__((visibility("default"))) const FakeTable ncclNetPlugin_v8;
const FakeTable ncclNetPlugin_v8 = {"fake", Init, Devices, GetProperties, {}};
#ifndef FAKE_PLUGIN_IS_ANOTHER
__attribute__((visibility("default"))) int forgive_stats() { return 0; }
#endif
}
