// SPDX-License-Identifier: Apache-2.0
// Asks a question in a child process, so that whatever hangs or crashes there is an answer too.
#include "testbed/doctor/bounded.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace forgive::doctor {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMostAnswerBytes = 4u << 20;
constexpr size_t kMostErrorBytes = 64u << 10;
constexpr int kTurnMs = 10;
// How long to wait for a child to die of SIGKILL: one that the kernel holds is left to it.
constexpr milliseconds kPatience{2000};

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  bool Open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read_end = ends[0];
    write_end = ends[1];
    fcntl(read_end, F_SETFL, O_NONBLOCK);
    return true;
  }
  void CloseWrite() {
    if (write_end >= 0) close(write_end);
    write_end = -1;
  }
  ~Pipe() {
    if (read_end >= 0) close(read_end);
    CloseWrite();
  }
};

void WriteAll(int fd, const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t result = write(fd, text.data() + written, text.size() - written);
    if (result < 0 && errno == EINTR) continue;
    if (result <= 0) return;
    written += static_cast<size_t>(result);
  }
}

[[noreturn]] void RunChild(pid_t parent, int answer, int errors, const std::function<Json()>& question) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  // One byte forbids both core files and the kernel's core handler programs.
  const rlimit no_core{1, 1};
  setrlimit(RLIMIT_CORE, &no_core);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  try {
    // "value" shows that the question came to its end.
    WriteAll(answer, Json{{"value", question()}}.dump(-1, ' ', false, Json::error_handler_t::replace));
  } catch (const std::exception& error) {
    WriteAll(STDERR_FILENO, error.what());
  }
  _exit(0);  // no destructor of a library that was opened here
}

// Takes what has come; returns false at the end of the pipe.
bool Drain(int fd, size_t limit, std::string* out) {
  char buffer[4096];
  while (true) {
    const ssize_t result = read(fd, buffer, sizeof(buffer));
    if (result > 0) {
      if (out->size() < limit) out->append(buffer, static_cast<size_t>(result));
      continue;
    }
    return result < 0 && (errno == EAGAIN || errno == EINTR);
  }
}

bool HasEnded(pid_t child) {
  siginfo_t information{};
  // The child stays a zombie here, so that its process group cannot be anybody else's yet.
  return waitid(P_PID, static_cast<id_t>(child), &information, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         information.si_pid == child;
}

std::string LastLine(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  const size_t newline = text.rfind('\n');
  return newline == std::string::npos ? text : text.substr(newline + 1);
}

// Ends what is left of the child's group and says how the child ended, 0 if by itself.
int Reap(pid_t child) {
  kill(-child, SIGKILL);
  kill(child, SIGKILL);
  const Clock::time_point end = Clock::now() + kPatience;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() > end) return SIGKILL;
    poll(nullptr, 0, kTurnMs);
  }
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

BoundedAnswer AskBounded(milliseconds limit, const std::function<Json()>& question) {
  BoundedAnswer result;
  Pipe answer;
  Pipe errors;
  const pid_t parent = getpid();
  const bool open = answer.Open() && errors.Open();
  const pid_t child = open ? fork() : -1;
  if (child < 0) {
    result.problem = fmt::format("no process could be started to look: {}", std::strerror(errno));
    return result;
  }
  if (child == 0) RunChild(parent, answer.write_end, errors.write_end, question);
  setpgid(child, child);
  answer.CloseWrite();
  errors.CloseWrite();

  std::string text;
  std::string said;
  const Clock::time_point end = Clock::now() + limit;
  bool late = false;
  while (!HasEnded(child) && !late) {
    pollfd ready{.fd = answer.read_end, .events = POLLIN, .revents = 0};
    poll(&ready, 1, kTurnMs);
    // At the end of its pipe the child is about to exit, or closed it and goes on: either way not a busy loop.
    if (!Drain(answer.read_end, kMostAnswerBytes, &text)) poll(nullptr, 0, 1);
    Drain(errors.read_end, kMostErrorBytes, &said);
    late = Clock::now() >= end;
  }
  late = late && !HasEnded(child);
  const int signal = Reap(child);
  Drain(answer.read_end, kMostAnswerBytes, &text);
  Drain(errors.read_end, kMostErrorBytes, &said);

  const std::string last = LastLine(said);
  const std::string detail = last.empty() ? "" : ": " + last;
  if (late) {
    result.problem = fmt::format("did not answer within {} s and was ended{}",
                                 std::chrono::duration<double>(limit).count(), detail);
    return result;
  }
  const Json parsed = Json::parse(text, nullptr, false);
  if (parsed.is_object() && parsed.contains("value")) {
    result.ok = true;
    result.value = parsed["value"];
  } else if (signal != 0) {
    result.problem = fmt::format("was ended by signal {} ({}){}", signal, strsignal(signal), detail);
  } else {
    result.problem = "ended without an answer" + detail;
  }
  return result;
}

void CheckBounded(const Context& context, const std::string& name, Status broken, Section* section,
                  const std::function<void(Section*)>& check) {
  const BoundedAnswer answer = AskBounded(context.limit, [&] {
    Section found;
    check(&found);
    Json list = Json::array();
    for (const Finding& finding : found.findings) {
      list.push_back({static_cast<int>(finding.status), finding.name, finding.text, finding.remedy});
    }
    return list;
  });
  if (!answer.ok) {
    section->findings.push_back({broken, name, "this check " + answer.problem, "repeat it with a larger --timeout"});
    return;
  }
  for (const Json& row : answer.value) {
    section->findings.push_back({static_cast<Status>(row[0].get<int>()), row[1].get<std::string>(),
                                 row[2].get<std::string>(), row[3].get<std::string>()});
  }
}

}  // namespace forgive::doctor
