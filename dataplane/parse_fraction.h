// SPDX-License-Identifier: Apache-2.0
// The one parser of fractions: exact, in parts per million.
#ifndef FORGIVE_DATAPLANE_PARSE_FRACTION_H_
#define FORGIVE_DATAPLANE_PARSE_FRACTION_H_

#include <cstdint>
#include <string_view>

#include "transport/units.h"

namespace forgive {

// 0 to `high`, written as digits with at most six decimals; *out is in millionths.
bool ParseMillionths(std::string_view text, uint64_t high, uint64_t* out);
// 0 to 1, written as digits with at most six decimals: "0.005", "1", ".1".
bool ParseFraction(std::string_view text, Fraction* out);

}  // namespace forgive

#endif  // FORGIVE_DATAPLANE_PARSE_FRACTION_H_
