// SPDX-License-Identifier: Apache-2.0
// What one rank does in a collective, slice by slice: the list that a kernel works through.
#ifndef FORGIVE_TESTBED_PERF_PROGRAM_H_
#define FORGIVE_TESTBED_PERF_PROGRAM_H_

#include <cstdint>
#include <vector>

#include "testbed/perf/schedule.h"

namespace forgive::perf {

// One slice of a ring: what comes from the previous rank (or from the input) is added to the input where asked,
// stored in the result where asked, and handed to the next rank where asked.
struct RingOperation {
  Interval interval;
  bool receive = false;
  bool add_input = false;
  bool store = false;
  bool send = false;
};
std::vector<RingOperation> RingProgram(const Schedule& schedule, int rank);

// Direct algorithms: an ordered list a connection. A contribution waits in its slot until all peers' are there;
// then they are summed in rank order, which makes reduction number `group` done.
struct DirectSend {
  Interval interval;
  std::int64_t group = -1;  // -1: from the input, at once; else from the result, once that reduction is done
};
struct DirectReceive {
  Interval interval;
  std::int64_t group = -1;  // -1: store it in the result; else a contribution to that reduction
};
struct DirectProgram {
  std::vector<std::vector<DirectSend>> sends;        // by peer
  std::vector<std::vector<DirectReceive>> receives;  // by peer
  std::vector<Interval> groups;                      // what each reduction covers
  std::vector<Interval> own;                         // copied from the input to the result at once
};
DirectProgram MakeDirectProgram(const Schedule& schedule, int rank);

}  // namespace forgive::perf

#endif  // FORGIVE_TESTBED_PERF_PROGRAM_H_
