// SPDX-License-Identifier: Apache-2.0
// Small readings of this host: files of one line, numbers in them, environment variables, capabilities.
#ifndef FORGIVE_TESTBED_DOCTOR_HOST_H_
#define FORGIVE_TESTBED_DOCTOR_HOST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace forgive::doctor {

// The first line of a file; empty if it cannot be read.
std::string ReadLine(const std::string& path);
// The file's first line as a number, in the file's own unit.
std::optional<int64_t> ReadNumber(const std::string& path);
std::optional<int64_t> ToNumber(const std::string& text);

// An environment variable; empty if it is not set.
std::string Variable(const char* name);

std::vector<std::string> Split(std::string_view text, char separator);
std::string Join(const std::vector<std::string>& words, std::string_view separator);
std::string ToLower(std::string text);

// Whether this process has a capability, by its number in linux/capability.h.
bool HasCapability(int capability);

// The same file after following links; false if either is missing.
bool IsSameFile(const std::string& a, const std::string& b);

}  // namespace forgive::doctor

#endif  // FORGIVE_TESTBED_DOCTOR_HOST_H_
