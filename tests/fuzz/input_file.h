// SPDX-License-Identifier: Apache-2.0
// A file that holds a fuzzer's bytes, for parsers that read files: one for all runs, in memory where there is /dev/shm.
#ifndef FORGIVE_TESTS_FUZZ_INPUT_FILE_H_
#define FORGIVE_TESTS_FUZZ_INPUT_FILE_H_

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "transport/check.h"

namespace forgive {

class InputFile {
 public:
  explicit InputFile(const std::string& ending)
      : path_((access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + std::string("/forgive_fuzz.") +
              std::to_string(getpid()) + ending),
        file_(open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
    FORGIVE_CHECK(file_ >= 0);
  }
  ~InputFile() {
    close(file_);
    unlink(path_.c_str());
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  void Write(const uint8_t* bytes, size_t size) {
    FORGIVE_CHECK(pwrite(file_, bytes, size, 0) == static_cast<ssize_t>(size));
    FORGIVE_CHECK(ftruncate(file_, static_cast<off_t>(size)) == 0);
  }

 private:
  std::string path_;
  int file_;
};

}  // namespace forgive

#endif  // FORGIVE_TESTS_FUZZ_INPUT_FILE_H_
