// SPDX-License-Identifier: Apache-2.0
// Asks a question in a child process, so that whatever hangs or crashes there is an answer too.
#ifndef FORGIVE_TESTBED_DOCTOR_BOUNDED_H_
#define FORGIVE_TESTBED_DOCTOR_BOUNDED_H_

#include <chrono>
#include <functional>
#include <string>

#include "testbed/doctor/finding.h"

namespace forgive::doctor {

struct BoundedAnswer {
  bool ok = false;
  Json value;           // what the question returned, if ok
  std::string problem;  // one line, if not: did not end within the limit, was ended by a signal, ended early
};

// Runs `question` in a forked child, which has no standard input, whose standard output goes nowhere, and which dies
// with this process. After `limit` the child and its process group are killed; no core file is written. Nothing that
// the question does reaches this process except the value it returns.
BoundedAnswer AskBounded(std::chrono::milliseconds limit, const std::function<Json()>& question);

// A check of a section in a bounded child: its findings are added to `section`, and a child that did not answer is
// itself a finding called `name`, with `broken` as its status.
void CheckBounded(const Context& context, const std::string& name, Status broken, Section* section,
                  const std::function<void(Section*)>& check);

}  // namespace forgive::doctor

#endif  // FORGIVE_TESTBED_DOCTOR_BOUNDED_H_
