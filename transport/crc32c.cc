// SPDX-License-Identifier: Apache-2.0
// CRC32C: wide carry-less multiplication, else three lanes of the processor's instruction, else tables.
#include "transport/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace forgive {
namespace {

// The Castagnoli polynomial with its bits reversed: bit i stands for x^(31-i), as in every value below.
constexpr uint32_t kPolynomial = 0x82f63b78;

// a(x) * x modulo the polynomial.
constexpr uint32_t TimesX(uint32_t a) { return (a >> 1) ^ ((a & 1) != 0 ? kPolynomial : 0); }

// kTables[k][b]: the register after byte b and then k zero bytes, from a zero register.
constexpr auto kTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = TimesX(crc);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}();

uint32_t UpdateByTables(uint32_t crc, const uint8_t* bytes, size_t length) {
  for (; length >= 8; length -= 8, bytes += 8) {
    uint64_t word;
    std::memcpy(&word, bytes, sizeof(word));
    if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
    word ^= crc;
    const auto table = [&](size_t k) { return kTables[7 - k][(word >> (8 * k)) & 0xff]; };
    crc = table(0) ^ table(1) ^ table(2) ^ table(3) ^ table(4) ^ table(5) ^ table(6) ^ table(7);
  }
  for (; length > 0; --length, ++bytes) crc = (crc >> 8) ^ kTables[0][(crc ^ *bytes) & 0xff];
  return crc;
}

#if defined(__x86_64__)

// The longest lane, in 8-byte words. Three of them are 4,080 bytes: a full payload is one round and two words.
constexpr size_t kMaxLaneWords = 170;
// Below this the lanes cost more than they save.
constexpr size_t kMinThreeLaneBytes = 240;

// kShift[n]: x^(64 n - 33), which moves a register over n words of zeros. The carry-less product of two reversed
// 32-bit values is their product times x as a reversed 64-bit value, and the instruction multiplies that by x^32:
// hence the 33.
constexpr auto kShift = [] {
  std::array<uint32_t, 2 * kMaxLaneWords + 1> shift{};
  uint32_t power = 0x80000000;  // x^0
  for (int bit = 0; bit < 64 - 33; ++bit) power = TimesX(power);
  for (size_t n = 1; n < shift.size(); ++n) {
    shift[n] = power;
    for (int bit = 0; bit < 64; ++bit) power = TimesX(power);
  }
  return shift;
}();

inline uint64_t LoadWord(const uint8_t* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// The product of two reversed 32-bit values, times x.
__attribute__((target("sse4.2,pclmul"))) inline uint64_t CarrylessProduct(uint64_t a, uint32_t b) {
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(a)),
                                               _mm_cvtsi64_si128(static_cast<long long>(uint64_t{b})), 0);
  return static_cast<uint64_t>(_mm_cvtsi128_si64(product));
}

// Three neighbouring lanes of lane_words each: the instruction takes three cycles but starts one in each.
__attribute__((target("sse4.2,pclmul"))) uint64_t UpdateThreeLanes(uint64_t crc, const uint8_t* bytes,
                                                                   size_t lane_words) {
  const uint8_t* second = bytes + 8 * lane_words;
  const uint8_t* third = second + 8 * lane_words;
  uint64_t crc2 = 0;
  uint64_t crc3 = 0;
  for (size_t i = 0; i < 8 * lane_words; i += 8) {
    crc = _mm_crc32_u64(crc, LoadWord(bytes + i));
    crc2 = _mm_crc32_u64(crc2, LoadWord(second + i));
    crc3 = _mm_crc32_u64(crc3, LoadWord(third + i));
  }
  const uint64_t moved = CarrylessProduct(crc, kShift[2 * lane_words]) ^ CarrylessProduct(crc2, kShift[lane_words]);
  return _mm_crc32_u64(0, moved) ^ crc3;
}

__attribute__((target("sse4.2,pclmul"))) uint32_t UpdateByInstruction(uint32_t start, const uint8_t* bytes,
                                                                      size_t length) {
  uint64_t crc = start;
  while (length >= kMinThreeLaneBytes) {
    const size_t lane_words = length / 24 < kMaxLaneWords ? length / 24 : kMaxLaneWords;
    crc = UpdateThreeLanes(crc, bytes, lane_words);
    bytes += 24 * lane_words;
    length -= 24 * lane_words;
  }
  for (; length >= 8; length -= 8, bytes += 8) crc = _mm_crc32_u64(crc, LoadWord(bytes));
  for (; length > 0; --length, ++bytes) crc = _mm_crc32_u8(static_cast<uint32_t>(crc), *bytes);
  return static_cast<uint32_t>(crc);
}

// x^n modulo the polynomial, reversed.
constexpr uint32_t PowerOfX(int n) {
  uint32_t power = 0x80000000;
  for (; n > 0; --n) power = TimesX(power);
  return power;
}

// What moves a 16-byte block `bits` further from the end: the multipliers of its first and of its last 8 bytes. A
// block is l x^64 + h; a product of two reversed 64-bit values is theirs times x, hence the -1; a multiplier stands
// in the upper half of its 64 bits.
struct Fold {
  long long first;
  long long last;
};
constexpr Fold FoldBy(int bits) {
  return {static_cast<long long>(uint64_t{PowerOfX(bits + 63)} << 32),
          static_cast<long long>(uint64_t{PowerOfX(bits - 1)} << 32)};
}

#define FORGIVE_WIDE __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.2")))

FORGIVE_WIDE inline __m512i Broadcast(Fold fold) {
  return _mm512_set4_epi64(fold.last, fold.first, fold.last, fold.first);
}

// The four blocks of `value`, each moved by its multipliers, added to `next`.
FORGIVE_WIDE inline __m512i FoldInto(__m512i value, __m512i multipliers, __m512i next) {
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(value, multipliers, 0x00),
                                   _mm512_clmulepi64_epi128(value, multipliers, 0x11), next, kXorOfThree);
}

// How far ahead to fetch, of what is read and of what is written. A payload and its place are mostly cold: the
// processor's own prefetching begins anew with each page, and a payload is about a page. Behind its end mostly comes
// the next one.
constexpr size_t kFetchAheadBytes = 2048;

// Where the wide instructions read, and where they copy to, or nowhere.
template <bool kCopies>
struct Stream {
  const uint8_t* from;
  uint8_t* to;

  FORGIVE_WIDE __attribute__((always_inline)) __m512i TakeRow() {
    const __m512i row = _mm512_loadu_si512(from);
    _mm_prefetch(reinterpret_cast<const char*>(from + kFetchAheadBytes), _MM_HINT_T0);
    from += sizeof(row);
    if constexpr (kCopies) {
      _mm512_storeu_si512(to, row);
      _mm_prefetch(reinterpret_cast<const char*>(to + kFetchAheadBytes), _MM_HINT_T0);
      to += sizeof(row);
    }
    return row;
  }
};

// For at least kMinWideBytes; takes whole 64-byte rows and leaves the rest to the caller.
constexpr size_t kMinWideBytes = 256;
template <bool kCopies>
FORGIVE_WIDE uint32_t UpdateWide(uint32_t start, const uint8_t* from, size_t rows, uint8_t* to) {
  constexpr Fold kBy2048 = FoldBy(2048), kBy512 = FoldBy(512);
  constexpr Fold kBy384 = FoldBy(384), kBy256 = FoldBy(256), kBy128 = FoldBy(128);
  Stream<kCopies> stream{from, to};
  const __m128i first = _mm_cvtsi32_si128(static_cast<int>(start));
  __m512i a = _mm512_xor_si512(stream.TakeRow(), _mm512_zextsi128_si512(first));
  __m512i b = stream.TakeRow();
  __m512i c = stream.TakeRow();
  __m512i d = stream.TakeRow();
  rows -= 4;
  for (const __m512i by = Broadcast(kBy2048); rows >= 4; rows -= 4) {
    a = FoldInto(a, by, stream.TakeRow());
    b = FoldInto(b, by, stream.TakeRow());
    c = FoldInto(c, by, stream.TakeRow());
    d = FoldInto(d, by, stream.TakeRow());
  }
  const __m512i by = Broadcast(kBy512);
  d = FoldInto(FoldInto(FoldInto(a, by, b), by, c), by, d);
  for (; rows > 0; --rows) d = FoldInto(d, by, stream.TakeRow());
  // The first three blocks move to the last one, which stays.
  const __m512i to_last =
      _mm512_set_epi64(0, 0, kBy128.last, kBy128.first, kBy256.last, kBy256.first, kBy384.last, kBy384.first);
  const __m512i moved = FoldInto(d, to_last, _mm512_setzero_si512());
  // Through memory: GCC 12 warns of its own extracting intrinsics.
  alignas(64) uint64_t parts[8];
  alignas(64) uint64_t whole[8];
  _mm512_store_si512(parts, moved);
  _mm512_store_si512(whole, d);
  const uint64_t crc = _mm_crc32_u64(0, parts[0] ^ parts[2] ^ parts[4] ^ whole[6]);
  return static_cast<uint32_t>(_mm_crc32_u64(crc, parts[1] ^ parts[3] ^ parts[5] ^ whole[7]));
}

#undef FORGIVE_WIDE

bool HasWide() {
  return Crc32cHasInstruction() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("vpclmulqdq");
}

#endif  // defined(__x86_64__)

}  // namespace

bool Crc32cHasInstruction() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
#else
  return false;
#endif
}

uint32_t Crc32cPortable(const void* bytes, size_t length) {
  return ~UpdateByTables(~uint32_t{0}, static_cast<const uint8_t*>(bytes), length);
}

uint32_t Crc32cThreeLanes(const void* bytes, size_t length) {
#if defined(__x86_64__)
  if (Crc32cHasInstruction()) return ~UpdateByInstruction(~uint32_t{0}, static_cast<const uint8_t*>(bytes), length);
#endif
  return Crc32cPortable(bytes, length);
}

namespace {

template <bool kCopies>
uint32_t Compute(const void* bytes, size_t length, void* to) {
#if defined(__x86_64__)
  if (length >= kMinWideBytes && HasWide()) {
    const auto* data = static_cast<const uint8_t*>(bytes);
    auto* place = static_cast<uint8_t*>(to);
    const size_t rows = length / 64;
    const uint32_t crc = UpdateWide<kCopies>(~uint32_t{0}, data, rows, place);
    if constexpr (kCopies) std::memcpy(place + 64 * rows, data + 64 * rows, length % 64);
    return ~UpdateByInstruction(crc, data + 64 * rows, length % 64);
  }
#endif
  if constexpr (kCopies) {
    if (length != 0) std::memcpy(to, bytes, length);
  }
  return Crc32cThreeLanes(bytes, length);
}

}  // namespace

uint32_t Crc32c(const void* bytes, size_t length) { return Compute<false>(bytes, length, nullptr); }

uint32_t Crc32cCopy(const void* bytes, size_t length, void* to) { return Compute<true>(bytes, length, to); }

}  // namespace forgive
