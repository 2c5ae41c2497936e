// SPDX-License-Identifier: Apache-2.0
// Writing a file that a command line names: whole or not at all, and never in the place of a device.
#ifndef FORGIVE_TESTBED_ENTRY_LIB_WHOLE_FILE_H_
#define FORGIVE_TESTBED_ENTRY_LIB_WHOLE_FILE_H_

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace forgive {

// Where a whole file's text comes to stand. What is not plain (a device, a pipe, a folder) is written in place.
struct WholeFilePlace {
  bool plain = false;
  std::string target;  // links followed
};

inline WholeFilePlace PlaceOfWholeFile(const std::string& file) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(file, ignored);
  const bool there = std::filesystem::exists(status);
  const bool plain = !there || std::filesystem::is_regular_file(status);
  return {plain, there && plain ? std::filesystem::canonical(file, ignored).string() : file};
}

inline bool FolderIsWritable(const std::string& file) {
  const std::string folder = std::filesystem::path(file).parent_path().string();
  return access(folder.empty() ? "." : folder.c_str(), W_OK) == 0;
}

// Whether the file could be written to, or made: what a program asks before it works for an hour.
inline bool FileIsWritable(const std::string& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return FolderIsWritable(file);
  return access(file.c_str(), W_OK) == 0 && !std::filesystem::is_directory(file, ignored);
}

// The same of a file for WriteWholeFile.
inline bool WholeFileIsWritable(const std::string& file) {
  const WholeFilePlace place = PlaceOfWholeFile(file);
  return FileIsWritable(file) && (!place.plain || FolderIsWritable(place.target));
}

// Why the text could not be written; empty if it was. What stood in the file stays until all of the text has arrived.
// Devices and pipes are written to and stay what they are; a link's file is written, and the link stays.
inline std::string WriteWholeFile(const std::string& file, std::string_view text) {
  const auto [plain, target] = PlaceOfWholeFile(file);
  const std::string place = plain ? target + ".new" : file;
  std::FILE* const stream = std::fopen(place.c_str(), "we");
  if (stream == nullptr) return std::strerror(errno);
  int error = std::fwrite(text.data(), 1, text.size(), stream) == text.size() ? 0 : errno;
  if (std::fclose(stream) != 0 && error == 0) error = errno;
  if (plain && error == 0 && std::rename(place.c_str(), target.c_str()) != 0) error = errno;
  if (plain && error != 0) std::remove(place.c_str());
  return error == 0 ? "" : std::strerror(error);
}

}  // namespace forgive

#endif  // FORGIVE_TESTBED_ENTRY_LIB_WHOLE_FILE_H_
