// SPDX-License-Identifier: Apache-2.0
// The parts of write_seeds: each writes the hand-made inputs of one target into a folder that is there.
#ifndef FORGIVE_TESTS_FUZZ_WRITE_SEEDS_H_
#define FORGIVE_TESTS_FUZZ_WRITE_SEEDS_H_

#include <cstdint>
#include <filesystem>
#include <vector>

namespace forgive {

using Bytes = std::vector<uint8_t>;

// False: it cannot be written, and standard error says so.
bool WriteFile(const std::filesystem::path& path, const Bytes& bytes);

bool WriteOptionsSeeds(const std::filesystem::path& folder);
bool WriteSettingsSeeds(const std::filesystem::path& folder);
bool WriteNormsSeeds(const std::filesystem::path& folder);
bool WritePlanSeeds(const std::filesystem::path& folder);

}  // namespace forgive

#endif  // FORGIVE_TESTS_FUZZ_WRITE_SEEDS_H_
