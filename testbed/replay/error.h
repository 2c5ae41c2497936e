// SPDX-License-Identifier: Apache-2.0
// The one way in which forgive_replay fails: bad input, said in one line.
#ifndef FORGIVE_TESTBED_REPLAY_ERROR_H_
#define FORGIVE_TESTBED_REPLAY_ERROR_H_

#include <stdexcept>

namespace forgive::replay {

// The text names the thing (file and line where there is one) and what is accepted.
class InputError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace forgive::replay

#endif  // FORGIVE_TESTBED_REPLAY_ERROR_H_
