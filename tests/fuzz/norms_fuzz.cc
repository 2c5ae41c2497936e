// SPDX-License-Identifier: Apache-2.0
// Any bytes as recorded norms and as labels, in CSV and in JSON lines: rows in order, or a complaint with its line.
#include <cstdint>
#include <cstring>
#include <string>

#include "input_file.h"
#include "testbed/replay/error.h"
#include "testbed/replay/norms_file.h"
#include "transport/check.h"

namespace {

using forgive::replay::InputError;

void CheckComplaint(const InputError& error, const std::string& path) {
  FORGIVE_CHECK(std::strncmp(error.what(), path.c_str(), path.size()) == 0);  // FILE: or FILE:LINE:
  FORGIVE_CHECK(error.what()[path.size()] == ':');
}

void Norms(const std::string& path) {
  try {
    const auto rows = forgive::replay::ReadNorms(path);
    FORGIVE_CHECK(!rows.empty() && !rows[0].norms.empty());
    for (size_t i = 1; i < rows.size(); ++i) {
      FORGIVE_CHECK(rows[i].step > rows[i - 1].step);
      FORGIVE_CHECK(rows[i].norms.size() == rows[0].norms.size());
    }
  } catch (const InputError& error) {
    CheckComplaint(error, path);
  }
}

void Labels(const std::string& path) {
  try {
    FORGIVE_CHECK(!forgive::replay::ReadLabels(path).empty());
  } catch (const InputError& error) {
    CheckComplaint(error, path);
  }
}

}  // namespace

// The first byte says which of the two, and which format.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static forgive::InputFile csv(".csv");
  static forgive::InputFile lines(".jsonl");
  forgive::InputFile& file = (data[0] & 1) != 0 ? lines : csv;
  file.Write(data + 1, size - 1);
  if ((data[0] & 2) != 0) {
    Labels(file.path());
  } else {
    Norms(file.path());
  }
  return 0;
}
