// SPDX-License-Identifier: Apache-2.0
// Follows the trim records and keeps, by message, the bytes that were ever trimmed.
#include "testbed/perf/trim_log.h"

#include <glob.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace forgive::perf {
namespace {

std::vector<std::string> Expand(const std::string& source) {
  std::error_code error;
  std::vector<std::string> files;
  if (std::filesystem::is_directory(source, error)) {
    for (const auto& entry : std::filesystem::directory_iterator(source, error)) {
      if (entry.is_regular_file(error)) files.push_back(entry.path().string());
    }
    return files;
  }
  for (const std::string& pattern : {source, source + ".*"}) {
    glob_t found = {};
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
      for (std::size_t i = 0; i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
    }
    globfree(&found);
  }
  return files;
}

}  // namespace

void TrimLog::Refresh() {
  for (const std::string& source : sources_) {
    for (const std::string& file : Expand(source)) ReadFrom(file);
  }
}

void TrimLog::ReadFrom(const std::string& file) {
  std::uint64_t& position = positions_[file];
  std::ifstream stream(file, std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(position));
  std::string line;
  while (std::getline(stream, line)) {
    if (stream.eof()) break;  // no newline yet: the writer is not done with it
    position += line.size() + 1;
    AddLine(line);
  }
}

bool TrimLog::AddLine(const std::string& line) {
  std::uint64_t connection = 0;
  std::uint32_t message = 0;
  std::uint64_t begin = 0;
  std::uint64_t length = 0;
  if (std::sscanf(line.c_str(), "trim %16" SCNx64 " %" SCNu32 " %" SCNu64 " %" SCNu64, &connection, &message, &begin,
                  &length) != 4) {
    return false;
  }
  ++lines_;
  std::uint64_t end = begin + length;
  auto& ranges = trimmed_[{connection, message}];
  auto after = ranges.upper_bound(begin);
  if (after != ranges.begin() && std::prev(after)->second >= begin) --after;
  while (after != ranges.end() && after->first <= end) {
    begin = std::min(begin, after->first);
    end = std::max(end, after->second);
    after = ranges.erase(after);
  }
  ranges[begin] = end;
  return true;
}

bool TrimLog::Covers(std::uint64_t connection_id, std::uint32_t message, std::uint64_t offset,
                     std::uint64_t length) const {
  const auto found = trimmed_.find({connection_id, message});
  if (found == trimmed_.end()) return length == 0;
  const auto after = found->second.upper_bound(offset);
  return after != found->second.begin() && std::prev(after)->second >= offset + length;
}

}  // namespace forgive::perf
