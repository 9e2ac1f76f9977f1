// How a simulation begins, and goes on in time: it moves `clock_`, takes events off the heap, and reads `skips_`.
#pragma once
#include "engine.hpp"

namespace slurm_sim {

template <int W>
Engine<W>::Engine(std::shared_ptr<const Config> c, std::shared_ptr<const Trace> t, std::shared_ptr<const Catalogue> k,
                  Time start)
    : clock_(c->params, start), energy_of_(start) {
  config = std::move(c);
  trace = std::move(t);
  catalogue = std::move(k);
  next_id_ = trace->next_id;
  up_ = Set::none();
  int count = static_cast<int>(config->nodes.size());
  add_range(up_, 0, count);
  idle_ = up_;
  competing_of_.resize(config->partitions.size());
  if (!params().linear) {
    for (const Node& node : config->nodes) {
      free_cpus_.push_back(node.cpus);
      free_memory_.push_back(node.memory);
      free_gpus_.push_back(node.gpus);
    }
    jobs_on_.resize(count);
    traces_.near.resize(config->by_gpus.size(), Set::none());
  }
  shared_ = idle_;
  usage_.fairshare.begin(params(), start);
  power_ = power();
  for (int i = 0; i < static_cast<int>(config->node_changes.size()); i++)
    push(std::max(config->node_changes[i].time, start), Happening::kNode, i);
  for (const Reservation& reservation : config->reservations)
    for (Time time : {reservation.start, reservation.end}) push(std::max(time, start), Happening::kReservation, 0);
}

template <int W>
void Engine<W>::enter_due() {
  for (int32_t job = 0; job < static_cast<int32_t>(trace->specs.size()); job++)
    if (trace->specs[job].submit <= clock_.now) enter(job);
}

// As state.py.
template <int W>
void Engine<W>::put_in(Time now, const std::vector<Placed>& jobs, const std::vector<int>& down, const Timers* timers) {
  clock_.now = energy_of_ = now;
  std::erase_if(events_, [now](const Event& event) { return event.time <= now; });
  std::make_heap(events_.begin(), events_.end(), std::greater<>());
  for (int node : down) {
    up_.remove(node);
    outages_.push_back({node, now, kNone});
  }
  power_ = power();
  std::vector<int32_t> slots;
  for (const Placed& item : jobs)
    if (const Extras* more = extras(spec(item.job)); more && more->priority > 1) lowest_ = std::min(lowest_, more->priority);
  for (const Placed& item : jobs) {
    slots.push_back(new_live(item.job));
    lives_[slots.back()].submit = item.submit;
    admit(slots.back());
  }
  for (size_t i = 0; i < jobs.size(); i++)
    if (jobs[i].start != kNone) put_on_nodes(slots[i], jobs[i]);
  for (size_t i = 0; i < jobs.size(); i++)
    if (jobs[i].start == kNone) put_in_queue(slots[i], jobs[i]);
  watch_arrays_ = dependency_log_.size() && !catalogue->arrays.empty();
  dependency_news_ = true;
  ordered_for_ = kNone;
  if (timers) {
    clock_.set(*timers);
  } else {
    changed();
    clock_.ask_main(params());
  }
  for (int32_t job = static_cast<int32_t>(jobs.size()); job < static_cast<int32_t>(trace->specs.size()); job++)
    if (trace->specs[job].submit <= now) enter(job);
}

template <int W>
void Engine<W>::put_on_nodes(int32_t slot, const Placed& item) {
  Live& job = lives_[slot];
  Set nodes = set_of(item.nodes);
  if (nodes.without(hosts(shape(job).request)).any())
    throw Refusal(Refusal::kSimulation, "job " + std::to_string(job.job_id) + ": not all of " + names(nodes) + " have room for it");
  leave_waiting(slot);
  job.state = State::kRunning;
  job.start = item.start;
  job.eligible = job.accrues = item.eligible;
  job.started = ++starts_;
  put_ranges(job, nodes);
  take(nodes, request(job), 1);
  count_use(job, nodes, 1);
  run_begins(slot, nodes);
  if (job.array >= 0) usage_.count_task(job.array, 1);
  if (Time runtime = spec(job.job).runtime; runtime != kNone) end_at(slot, std::max(item.start + runtime, clock_.now));
  watch_limit(slot);
}

template <int W>
void Engine<W>::put_in_queue(int32_t slot, const Placed& item) {
  tie(slot);
  Live& job = lives_[slot];
  for_each_choice(job, [&](int32_t choice) {
    bool too_few = set_of(catalogue->shapes[choice].suitable).count() < job.nodes;
    some_want_too_many_ = some_want_too_many_ || too_few;
  });
  if (!job.held && sizes_by_tests()) note_test(job, possible(job));  // as it was when it was submitted
  job.reason = item.reason;
  if (is_noted(job.reason)) job.noted = job.reason;
  if (job.begin != kNone && job.begin > clock_.now) push(job.begin, Happening::kBegin, job.job);
  if (job.dependencies >= 0) {
    for (const Dependency& needed : dependency_log_[job.dependencies]->items) {
      int32_t other = find(needed.job_id);
      if (Time start = other < 0 ? kNone : record_of(other).start; needed.delay && start != kNone)
        push(std::max(clock_.now, start + needed.delay), Happening::kBegin, job.job);
    }
  }
  if (item.eligible == kNone) return;
  job.eligible = job.accrues = item.eligible;
  compete(slot);
}

// ---- time

// Compared without branches, which could not be predicted: a time and, in the last bits, its kind's place.
template <int W>
typename Engine<W>::Due Engine<W>::due() {
  constexpr int kBits = 4;
  constexpr Time kLast = kNever >> kBits;
  constexpr auto kBehind = Happening::kNothing;  // where backfill comes in a second in which the background loop comes before it
  Time first = kNever;
  auto offer = [&](Time time, Happening place) {
    first = std::min(first, std::min(time, kLast) << kBits | static_cast<Time>(place));
  };
  bool any = !events_.empty(), more = next_submit_ < static_cast<int32_t>(trace->by_submit.size());
  if (any) offer(events_.front().time, events_.front().kind());
  if (more) offer(trace->specs[trace->by_submit[next_submit_]].submit, Happening::kSubmit);
  any = any || more;
  bool may_change = any && !(queue_.empty() && fresh_.empty()), looks = any && params().backfill;
  Time main = std::min({clock_.main_due, clock_.put_off, clock_.main_wanted || may_change ? clock_.next_full() : kNever});
  if (!params().main) main = kNever;
  offer(main, main == clock_.checked ? Happening::kMainAfterCheck : Happening::kMain);
  Time look = looks && (may_change || waiting_unheld_ > 0) ? clock_.recalculation_noticed(params()) : kNever;
  look = std::min({look, clock_.backfill_due, kLast});
  offer(look, look < kLast && clock_.ticks_first() ? kBehind : Happening::kBackfill);
  offer(looks && clock_.purge_due != kNever ? std::max(clock_.now, clock_.purge_due) : kNever, Happening::kPurge);
  Time time = first >> kBits;
  if (time == kLast) return {kNever, Happening::kNothing};
  auto place = static_cast<Happening>(first & ((1 << kBits) - 1));
  if (place == Happening::kMainAfterCheck) return {time, Happening::kMain};
  return {time, place == kBehind ? Happening::kBackfill : place};
}

template <int W>
bool Engine<W>::advance(Time time, int64_t steps) {
  while (news_.empty()) {
    skip_quiet_passes(std::min(time, kNever - 1));
    Due next = due();
    if (next.time > time || next.time == kNever) {
      if (time != kNever) clock_.now = time;
      return true;
    }
    if (steps-- == 0) return false;
    happen(next);
  }
  return true;
}

template <int W>
Time Engine<W>::run_until_start(int64_t job_id, Time latest) {
  int32_t job = index_of(job_id);
  for (;;) {
    if (Record its = record_of(job); its.start != kNone || is_over(its.state) || !news_.empty()) return its.start;
    skip_quiet_passes(latest);
    Due next = due();
    if (next.time > latest || next.time == kNever) {
      clock_.now = std::max(clock_.now, latest);
      return kNone;
    }
    happen(next);
  }
}

// Passes that start nothing and change no reason only move the timers on. All of them before the next event, and up to
// this time, at once.
template <int W>
void Engine<W>::skip_quiet_passes(Time until) {
  if (thorough || !skips_.main_quiet || clock_.main_due != kNever || clock_.main_wanted || clock_.review_wanted || queue_.empty() || !fresh_.empty()) return;
  const Params& p = params();
  // sched_min_interval puts passes off to times that depend on each other; an unnoted reason is news for backfill.
  if (p.sched_min_interval || !p.main || unnoted_) return;
  if (p.backfill && (clock_.now >= skips_.quiet_until || !skips_.unseen.empty())) return;
  bool more = next_submit_ < static_cast<int32_t>(trace->by_submit.size());
  if (events_.empty() && !more) return;
  // The first second that may be different: an event, a submission, or the end of what the last plan knows.
  Time end = std::min(until, clock_.now + 10 * kYear) + 1;
  if (!events_.empty()) end = std::min(end, events_.front().time);
  if (more) end = std::min(end, trace->specs[trace->by_submit[next_submit_]].submit);
  if (p.backfill) end = std::min(end, skips_.quiet_until);
  // Priorities may move at the next calculation.
  if (priorities_move()) end = std::min(end, ordered_for_ + p.calc_period);
  if (p.backfill) {
    Time first_us = clock_.last_backfill_us + p.bf_interval * kSecondUs, period_us = p.bf_interval * kSecondUs + cycle_us();
    // A pass takes back what the last one planned, which is news for the next: they follow each other by bf_interval.
    if (clock_.moved || clock_.planned) {
      if (clock_.backfill_due != first_us / kSecondUs) return;
      if (end * kSecondUs > first_us) {
        Time passes = (end * kSecondUs - 1 - first_us) / period_us;  // after the first
        clock_.last_backfill_us = first_us + passes * period_us + cycle_us();
        clock_.backfill_due = (clock_.last_backfill_us + p.bf_interval * kSecondUs) / kSecondUs;
      }
      purge_until(end - 1);  // which is no news beside theirs
    } else {
      return skip_passes_without_news(std::min(end, clock_.purge_due));
    }
  }
  if (Time full = clock_.next_full(); full < end) {
    full += (end - 1 - full) / p.sched_interval * p.sched_interval;
    clock_.last_full = clock_.last_main = full;
  }
}

// The passes before `end` where backfill makes no news of its own: it runs after recalculated priorities, and after main
// passes that pass jobs over.
template <int W>
void Engine<W>::skip_passes_without_news(Time end) {
  for (Time full = clock_.next_full();;) {
    Time look = std::min(clock_.backfill_due, clock_.recalculation_noticed(params()));
    if (std::min(look, full) >= end) return;
    if (look < full || (look == full && !clock_.ticks_first())) {
      clock_.last_backfill_us = look * kSecondUs + clock_.last_backfill_us % kSecondUs + cycle_us();
      clock_.backfill_due = clock_.last_news >= clock_.last_backfill_us / kSecondUs ? clock_.next_look(params(), look) : kNever;
    } else {
      clock_.last_full = clock_.last_main = full;
      if (skips_.main_passes_over != kNever) {
        clock_.last_news = full;
        clock_.backfill_due = std::min(clock_.backfill_due, clock_.next_look(params(), full + !clock_.ticks_first()));
      }
      full += params().sched_interval;
    }
  }
}

template <int W>
void Engine<W>::happen(const Due& next) {
  clock_.now = next.time;
  clock_.happening = next.kind;
  happen(next.kind);
  clock_.happening = Happening::kNothing;
}

template <int W>
void Engine<W>::happen(Happening kind) {
  if (kind == Happening::kMain) return main_pass();
  if (kind == Happening::kBackfill) return backfill_pass();
  if (kind == Happening::kPurge) {
    purge_until(clock_.now);
    return clock_.news_for_backfill(params());
  }
  // Of submissions at one time, those of the trace came first.
  if (kind == Happening::kSubmit && next_submit_ < static_cast<int32_t>(trace->by_submit.size())) {
    int32_t job = trace->by_submit[next_submit_];
    if (trace->specs[job].submit == clock_.now) {
      next_submit_++;
      return enter(job);
    }
  }
  Event event = events_.front();
  std::pop_heap(events_.begin(), events_.end(), std::greater<>());
  events_.pop_back();
  job_event(event);
}

template <int W>
void Engine<W>::job_event(const Event& event) {
  int32_t subject = event.subject;
  switch (event.kind()) {
    case Happening::kSubmit: return enter(subject);
    case Happening::kBegin: clock_.main_wanted = clock_.review_wanted = true; return;
    case Happening::kReservation: return changed();
    case Happening::kNode: return node_action(config->node_changes[subject].node, config->node_changes[subject].action);
    case Happening::kCancel:
      if (int32_t slot = slot_of(subject); slot >= 0) cancel_slot(slot);
      return;
    case Happening::kEnd:
      // Unless the check of this second ends it, later in the second.
      if (lives_[subject].end_event == event.sequence() && killed_at(lives_[subject]) > clock_.now) end_by_itself(subject);
      return;
    case Happening::kLimit:
      if (const Live& job = lives_[subject]; job.limit_event == event.sequence()) {
        clock_.checked = clock_.last_full = clock_.now;  // a pass over the whole queue of this second is over
        kill(subject, job.runtime_end == clock_.now ? own_end(job) : State::kTimeout);
      }
      return;
    default: return;
  }
}

template <int W>
uint64_t Engine<W>::push(Time time, Happening kind, int32_t subject) {
  sequence_++;
  events_.push_back({time, static_cast<uint64_t>(kind) << 56 | sequence_, subject});
  std::push_heap(events_.begin(), events_.end(), std::greater<>());
  return sequence_;
}

}  // namespace slurm_sim
