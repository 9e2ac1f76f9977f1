#include "clock.hpp"

namespace slurm_sim {

Clock::Clock(const Params& p, Time begin) : start(begin), now(begin) {
  last_main = last_full = begin;
  last_pass = begin - p.sched_min_interval;
  last_backfill_us = begin * kSecondUs + kBackfillPhaseUs;
  full_passes.begin(begin, p.sched_interval);
  calculations.begin(begin, p.calc_period);
  calculations_seen = calculations;
  calculated = begin;
}

void Clock::set(const Timers& timers) {
  last_main = timers.last_main;
  last_full = timers.last_full;
  last_pass = timers.last_pass;
  put_off = timers.put_off;
  put_off_full = timers.put_off_full;
  last_backfill_us = timers.last_backfill_us;
  main_due = timers.main_due;
  backfill_due = timers.backfill_due;
  main_wanted = timers.main_wanted;
  review_wanted = timers.review_wanted;
  planned = timers.planned;
  last_news = now;
}

bool Clock::puts_off(const Params& p, bool& full) {
  if (put_off == kNever) {
    // slurmctld has a pass over the whole queue also where that is known to be in vain.
    Time before = now - 1 - start, whole = now - 1 - before % p.sched_interval, last = last_pass;
    if (before >= p.sched_interval && whole > last) last = std::max(whole, last + p.sched_min_interval);
    put_off = std::max(now, last + p.sched_min_interval);
  }
  full = put_off_full = put_off_full || full;
  if (put_off > now) return true;
  last_pass = now;
  put_off = kNever;
  put_off_full = false;
  return false;
}

void Clock::news_for_backfill(const Params& p) {
  last_news = now;
  if (!p.backfill) return;
  bool ticked = happening == Happening::kLimit || happening == Happening::kMain || happening == Happening::kPurge;
  bool after_its_look = ticked && !ticks_first();
  backfill_due = std::min(backfill_due, next_look(p, now + after_its_look));
}

Time Clock::purge_of(const Params& p, Time ended) const {
  Time age = p.min_job_age;
  return age ? start + round_up(ended + age - start, std::min<Time>(60, std::max<Time>(10, age))) : kNever;
}

}  // namespace slurm_sim
