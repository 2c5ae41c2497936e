// SPDX-License-Identifier: Apache-2.0
// Commands by popen, whose children stay in the network namespace of the thread that starts them.
#include "testbed/perf/bench/commands.h"

#include <unistd.h>

#include <cstdio>

#include "testbed/perf/error.h"

namespace forgive::perf {
namespace {

FILE* Start(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) throw RunError("\"" + command + "\" cannot be started");
  return pipe;
}

CommandResult Finish(FILE* pipe) {
  CommandResult result;
  char part[4096];
  for (size_t got = 0; (got = std::fread(part, 1, sizeof(part), pipe)) != 0;) result.output.append(part, got);
  result.status = pclose(pipe);
  return result;
}

}  // namespace

CommandResult RunCommand(const std::string& command) { return Finish(Start(command)); }

std::array<CommandResult, 2> RunAtBothEnds(Wire& wire, const std::array<std::string, 2>& commands) {
  std::array<FILE*, 2> running = {};
  for (int end = 0; end < 2; ++end) {
    wire.At(end, [&] { running[static_cast<size_t>(end)] = Start(commands[static_cast<size_t>(end)]); });
  }
  return {Finish(running[0]), Finish(running[1])};
}

std::string Quoted(const std::string& word) {
  std::string quoted = "'";
  for (const char letter : word) quoted += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return quoted + "'";
}

std::string BuildFolder() {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  if (length < 0) return "";
  const std::string path(self, static_cast<size_t>(length));
  const size_t end = path.rfind("/testbed/");
  return end == std::string::npos ? "" : path.substr(0, end + 1);
}

}  // namespace forgive::perf
