// SPDX-License-Identifier: Apache-2.0
// Small readings of this host: files of one line, numbers in them, environment variables, capabilities.
#include "testbed/doctor/host.h"

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "dataplane/parse_number.h"

namespace forgive::doctor {

std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<int64_t> ReadNumber(const std::string& path) { return ToNumber(ReadLine(path)); }

std::optional<int64_t> ToNumber(const std::string& text) {
  int64_t value = 0;
  return ParseNumber(text, &value) ? std::optional(value) : std::nullopt;
}

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t at = std::min(text.find(separator), text.size());
    if (at > 0) words.emplace_back(text.substr(0, at));
    text.remove_prefix(std::min(at + 1, text.size()));
  }
  return words;
}

std::string Join(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

std::string ToLower(std::string text) {
  for (char& letter : text) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return text;
}

bool HasCapability(int capability) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (!line.starts_with("CapEff:")) continue;
    return (std::strtoull(line.c_str() + sizeof("CapEff:"), nullptr, 16) >> capability & 1) != 0;
  }
  return false;
}

bool IsSameFile(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error) && !error;
}

}  // namespace forgive::doctor
