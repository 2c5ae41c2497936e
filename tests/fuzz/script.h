// SPDX-License-Identifier: Apache-2.0
// Reading a fuzzer's bytes as a script of events: small numbers in turn, zeros behind the end.
#ifndef FORGIVE_TESTS_FUZZ_SCRIPT_H_
#define FORGIVE_TESTS_FUZZ_SCRIPT_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace forgive {

class Script {
 public:
  Script(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool done() const { return position_ >= size_; }
  uint8_t Byte() { return done() ? uint8_t{0} : data_[position_++]; }
  bool Flag() { return (Byte() & 1) != 0; }
  // A number below `bound`, which is at most 256.
  size_t Below(size_t bound) { return Byte() % bound; }
  uint16_t Word() { return static_cast<uint16_t>(Byte() << 8 | Byte()); }
  uint32_t Word32() { return uint32_t{Word()} << 16 | Word(); }
  uint64_t Word64() { return uint64_t{Word32()} << 32 | Word32(); }
  // All that is left.
  std::string Rest() {
    std::string rest(reinterpret_cast<const char*>(data_) + position_, size_ - position_);
    position_ = size_;
    return rest;
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t position_ = 0;
};

}  // namespace forgive

#endif  // FORGIVE_TESTS_FUZZ_SCRIPT_H_
