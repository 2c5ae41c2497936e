// SPDX-License-Identifier: Apache-2.0
// One schedule: applications that post, close, die and come back, until the faults stop and everything must finish.
#ifndef FORGIVE_TESTS_DST_SCHEDULE_H_
#define FORGIVE_TESTS_DST_SCHEDULE_H_

#include <vector>

#include "network.h"
#include "oracle.h"

namespace forgive::dst {

// Runs schedules one after the other and keeps what they allocate. What it does follows from the seed alone.
class Stage {
 public:
  Stage(Journal* journal, Tally* tally);

  // journal->failed() says whether a rule was broken.
  void Run(uint64_t seed, bool large, bool traces);

 private:
  void Turn();
  void RunSpells();
  void StartSpell(const Spell& spell);
  void EndSpell(const Spell& spell);
  void Connect(const StreamPlan& plan);
  void Die(int host);
  void Reboot(int host);
  void CloseOne(int host);
  void CloseEnd(StreamState* stream, bool sends);
  void TendStreams();
  void TendSteps(int host);
  void BeginStep(int host);
  void Post(size_t index, bool all);
  bool PostSend(size_t index);
  bool PostReceive(size_t index);
  bool MayPost(const StreamState& stream, bool sends) const;
  bool Finished(const StreamState& stream) const;
  bool AllFinished();
  void Advance(TimePoint end);
  void Finish();
  void Rest();
  std::string Unfinished();
  uint64_t Below(uint64_t bound) { return draw_.Below(bound); }

  Journal* const journal_;
  Tally* const tally_;
  testing::World world_;
  Oracle oracle_;
  Network network_;
  Plan plan_;
  Draw draw_{0};
  std::vector<uint8_t> running_;  // of each spell: 0 not begun, 1 running, 2 over
  bool finishing_ = false;
};

}  // namespace forgive::dst

#endif  // FORGIVE_TESTS_DST_SCHEDULE_H_
