// SPDX-License-Identifier: Apache-2.0
// Why a connection failed, in words for one line of a log.
#ifndef FORGIVE_PLUGIN_FAIL_WORDS_H_
#define FORGIVE_PLUGIN_FAIL_WORDS_H_

#include "transport/event.h"

namespace forgive {

// What happened and, where somebody can do something about it, what.
const char* Words(FailReason reason);

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_FAIL_WORDS_H_
