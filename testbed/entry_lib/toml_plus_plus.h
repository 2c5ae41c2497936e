// SPDX-License-Identifier: Apache-2.0
// toml++ without its assertions: some of them doubt what a file says, and its errors say the same with the line.
#ifndef FORGIVE_TESTBED_ENTRY_LIB_TOML_PLUS_PLUS_H_
#define FORGIVE_TESTBED_ENTRY_LIB_TOML_PLUS_PLUS_H_

// toml++ 3.3 asserts that a key begins with a letter or a quote before it looks whether it does: "[[[x" ended a
// program. With NDEBUG it would drop this macro, and tell clang that what is asserted is true: undefined behaviour.
#define TOML_ASSERT(condition) static_assert(true)
#pragma push_macro("NDEBUG")
#undef NDEBUG
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

#endif  // FORGIVE_TESTBED_ENTRY_LIB_TOML_PLUS_PLUS_H_
