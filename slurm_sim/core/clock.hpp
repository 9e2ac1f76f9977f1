// When the schedulers run: the times of their passes, and what asks for the next one. It touches no job and no node.
#pragma once
#include <algorithm>

#include "core.hpp"

namespace slurm_sim {

enum class Happening : uint8_t { kEnd, kNode, kReservation, kCancel, kSubmit, kBegin, kBackfill, kMain, kLimit, kMainAfterCheck, kPurge, kNothing };

// To the next multiple; a step of 0 changes nothing.
inline Time round_up(Time value, Time step) {
  if (!step) return value;
  return value >= 0 ? (value + step - 1) / step * step : -(-value / step) * step;
}

// Times from an origin on, one each step. Remembers its last answer, as divisions take long and most questions are about
// the same time.
class Grid {
 public:
  void begin(Time origin, Time step) {
    origin_ = origin;
    step_ = step;
    last_ = origin;
  }
  // The first that is not before.
  Time from(Time time) {
    if (time > last_ || time <= last_ - step_) last_ = origin_ + round_up(time - origin_, step_);
    return last_;
  }
  // The last that is not after.
  Time until(Time time) { return from(time + 1) - step_; }

 private:
  Time origin_ = 0, step_ = 1, last_ = 0;
};

struct Clock {
  Time start, now;
  Happening happening = Happening::kNothing;
  Time checked = kNone;           // when a limit check last ended a job; the main pass that follows waits for all that it ends
  // Main passes: kNever: none is due.
  Grid full_passes;               // those over the whole queue
  Time last_main, last_full, last_pass;  // last_pass: when one last ran
  Time main_due = kNever;
  Time put_off = kNever;          // until when sched_min_interval puts a pass off,
  bool put_off_full = false;      // perhaps one over the whole queue
  bool main_wanted = false, review_wanted = false;
  // Backfill.
  Time last_backfill_us, backfill_due = kNever;
  Time last_news = kNone;         // when it last got something to look at
  bool moved = false;             // its last pass set an expected start
  bool planned = false;           // and left PLANNED nodes
  // Priorities.
  Grid calculations, calculations_seen;  // calculations_seen: those that backfill has noticed
  Time calculated;                // when they were last calculated, as seen by what happened until now
  // Records of ended jobs.
  Time purge_due = kNever;        // when slurmctld next deletes some
  int64_t purged = 0;             // how many it has deleted

  Clock(const Params& p, Time begin);
  Timers timers() const {
    return {last_main, last_full, last_pass, put_off, put_off_full, last_backfill_us, main_due, backfill_due,
            main_wanted, review_wanted, planned};
  }
  void set(const Timers& timers);

  // A main pass soon: sched batch_sched_delay after the last one.
  void ask_main(const Params& p) {
    if (main_due == kNever) main_due = std::max(now, std::max(last_main, full_passes.until(now)) + p.batch_sched_delay);
  }
  Time next_full() { return full_passes.from(std::max(last_full + 1, now)); }
  // Whether it is too soon after the last main pass. Then one serves all that are asked for meanwhile.
  bool puts_off(const Params& p, bool& full);
  // Whether slurmctld's background loop (main passes, limits, old records) comes before backfill within a second.
  bool ticks_first() const { return last_backfill_us % kSecondUs > kTickPhaseUs; }
  // When backfill notices news: from bf_interval after its last pass on it looks each second.
  Time next_look(const Params& p, Time news) const {
    Time first_us = last_backfill_us + p.bf_interval * kSecondUs;
    return std::max(first_us, news * kSecondUs + first_us % kSecondUs) / kSecondUs;
  }
  void news_for_backfill(const Params& p);
  // When backfill notices the first recalculation of priorities since its last pass.
  Time recalculation_noticed(const Params& p) {
    if (!p.multifactor) return kNever;
    bool looked_before = last_backfill_us % kSecondUs < kTickPhaseUs;
    return std::max(now, next_look(p, calculations_seen.from(last_backfill_us / kSecondUs) + looked_before));
  }
  // When priorities were last calculated, as far as seen by this time.
  Time see_calculated(Time time) { return calculated = std::max(calculated, calculations.until(time)); }
  // When slurmctld deletes the record of a job that ended then.
  Time purge_of(const Params& p, Time ended) const;
};

}  // namespace slurm_sim
