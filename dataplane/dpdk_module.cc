// SPDX-License-Identifier: Apache-2.0
// The dpdk driver as seen from this library: a module beside it, loaded only when it is asked for.
#include "dataplane/dpdk_module.h"

#include <dlfcn.h>

namespace forgive {
namespace {

// The folder of whatever holds this code: the plugin's library or a test program.
std::string OwnFolder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&OpenDpdkDriver), &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

std::string OneLine(const char* text) {
  std::string line = text == nullptr ? "unknown" : text;
  for (char& c : line) c = c == '\n' ? ' ' : c;
  return line;
}

}  // namespace

std::unique_ptr<Driver> OpenDpdkDriver(const DpdkDriverOptions& options, const std::string& module,
                                       std::string* error) {
  const std::string path = module.empty() ? OwnFolder() + kDpdkModuleName : module;
  // Never closed: DPDK's threads outlive its ports.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    *error = "driver dpdk cannot be loaded: " + OneLine(dlerror()) +
             ": install DPDK 22.11 (libdpdk-dev) and build with it, or choose FORGIVE_DRIVER=udp";
    return nullptr;
  }
  const auto open = reinterpret_cast<DpdkModuleOpen>(dlsym(library, kDpdkModuleSymbol));
  if (open == nullptr) {
    *error = path + " is not the dpdk driver of this build: install both libraries from one build";
    return nullptr;
  }
  return std::unique_ptr<Driver>(open(kDpdkModuleBuild, &options, error));
}

}  // namespace forgive
