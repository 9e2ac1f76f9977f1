// Engine: jobs and nodes, and how they change. Follows cluster.py and reference.py function by function.
#pragma once
#include "engine.hpp"

namespace slurm_sim {

template <int W>
Engine<W>::Engine(std::shared_ptr<const Config> c, std::shared_ptr<const Trace> t, std::shared_ptr<const Catalogue> k,
                  Time start)
    : start_(start), now_(start), energy_of_(start) {
  config = std::move(c);
  trace = std::move(t);
  catalogue = std::move(k);
  last_main_ = last_full_ = start;
  last_backfill_us_ = start * kSecondUs + kBackfillPhaseUs;
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
    near_.resize(config->by_gpus.size(), Set::none());
  }
  shared_ = idle_;
  fairshare_.begin(params(), start);
  power_ = power();
  for (int i = 0; i < static_cast<int>(config->node_changes.size()); i++)
    push(std::max(config->node_changes[i].time, start), Happening::kNode, i);
  for (const Reservation& reservation : config->reservations)
    for (Time time : {reservation.start, reservation.end}) push(std::max(time, start), Happening::kReservation, 0);
}

template <int W>
void Engine<W>::enter_due() {
  for (int32_t job = 0; job < static_cast<int32_t>(trace->specs.size()); job++)
    if (trace->specs[job].submit <= now_) enter(job);
}

// As state.py.
template <int W>
void Engine<W>::put_in(Time now, const std::vector<Placed>& jobs, const std::vector<int>& down, const Timers* timers) {
  now_ = energy_of_ = now;
  std::erase_if(events_, [now](const Event& event) { return event.time <= now; });
  std::make_heap(events_.begin(), events_.end(), std::greater<>());
  for (int node : down) {
    up_.remove(node);
    outages_.push_back({node, now, kNone});
  }
  power_ = power();
  std::vector<int32_t> slots;
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
    last_main_ = timers->last_main;
    last_full_ = timers->last_full;
    last_backfill_us_ = timers->last_backfill_us;
    main_due_ = timers->main_due;
    backfill_due_ = timers->backfill_due;
    main_wanted_ = timers->main_wanted;
    review_wanted_ = timers->review_wanted;
    planned_ = timers->planned;
    last_news_ = now_;
  } else {
    changed();
    ask_main();
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
  job.eligible = item.eligible;
  job.started = ++starts_;
  put_ranges(job, nodes);
  take(nodes, request(job), 1);
  count_use(job, &nodes, 1);
  run_begins(slot, nodes);
  if (job.array >= 0) tasks_running(job.array)++;
  if (Time runtime = spec(job.job).runtime; runtime != kNone) end_at(slot, std::max(item.start + runtime, now_));
  watch_limit(slot);
}

template <int W>
void Engine<W>::put_in_queue(int32_t slot, const Placed& item) {
  tie(slot);
  Live& job = lives_[slot];
  job.reason = item.reason;
  if (job.begin != kNone && job.begin > now_) push(job.begin, Happening::kBegin, job.job);
  if (job.dependencies >= 0) {
    for (const Dependency& needed : dependency_log_[job.dependencies]->items) {
      int32_t other = find(needed.job_id);
      if (Time start = other < 0 ? kNone : record_of(other).start; needed.delay && start != kNone)
        push(std::max(now_, start + needed.delay), Happening::kBegin, job.job);
    }
  }
  if (item.eligible == kNone) return;
  job.eligible = item.eligible;
  compete(slot);
}

// ---- time

template <int W>
typename Engine<W>::Due Engine<W>::due() const {
  Due first{kNever, Happening::kNothing};
  auto place = [&](Time time, Happening kind) {
    return kind == Happening::kBackfill && ticks_first(time) ? Happening::kNothing : kind;
  };
  auto offer = [&](Time time, Happening kind) {
    if (time < first.time || (time == first.time && place(time, kind) < place(time, first.kind))) first = {time, kind};
  };
  bool any = false;
  if (!events_.empty()) {
    offer(events_.front().time, events_.front().kind());
    any = true;
  }
  if (next_submit_ < static_cast<int32_t>(trace->by_submit.size())) {
    offer(trace->specs[trace->by_submit[next_submit_]].submit, Happening::kSubmit);
    any = true;
  }
  if (main_due_ != kNever) offer(main_due_, Happening::kMain);
  if (backfill_due_ != kNever) offer(backfill_due_, Happening::kBackfill);
  bool may_change = any && !(queue_.empty() && fresh_.empty());
  if (main_wanted_ || may_change) offer(next_full(), Happening::kMain);
  if (any && params().backfill) {
    if (may_change || waiting_unheld_ > 0) offer(recalculation_noticed(), Happening::kBackfill);
    if (purge_due_ != kNever) offer(std::max(now_, purge_due_), Happening::kPurge);
  }
  return first;
}

template <int W>
bool Engine<W>::advance(Time time, int64_t steps) {
  while (news_.empty()) {
    skip_quiet_passes(std::min(time, kNever - 1));
    Due next = due();
    if (next.time > time || next.time == kNever) {
      if (time != kNever) now_ = time;
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
      now_ = std::max(now_, latest);
      return kNone;
    }
    happen(next);
  }
}

// Passes that start nothing and change no reason only move the timers on. All of them before the next event, and up to
// this time, at once.
template <int W>
void Engine<W>::skip_quiet_passes(Time until) {
  if (thorough || !main_quiet_ || main_due_ != kNever || main_wanted_ || review_wanted_ || queue_.empty() || !fresh_.empty()) return;
  const Params& p = params();
  if (p.backfill && (now_ >= quiet_until_ || !unseen_.empty())) return;
  bool more = next_submit_ < static_cast<int32_t>(trace->by_submit.size());
  if (events_.empty() && !more) return;
  Time end = std::min(until, now_ + 10 * kYear) + 1;
  if (!events_.empty()) end = std::min(end, events_.front().time);
  if (more) end = std::min(end, trace->specs[trace->by_submit[next_submit_]].submit);
  if (p.backfill) end = std::min(end, quiet_until_);
  // Priorities may move at the next calculation.
  if (priorities_move()) end = std::min(end, ordered_for_ + p.calc_period);
  if (p.backfill) {
    Time first_us = last_backfill_us_ + p.bf_interval * kSecondUs, period_us = p.bf_interval * kSecondUs + cycle_us();
    if (moved_ || planned_) {
      if (backfill_due_ != first_us / kSecondUs) return;
      if (end * kSecondUs > first_us) {
        Time passes = (end * kSecondUs - 1 - first_us) / period_us;  // after the first
        last_backfill_us_ = first_us + passes * period_us + cycle_us();
        backfill_due_ = (last_backfill_us_ + p.bf_interval * kSecondUs) / kSecondUs;
      }
      purge_until(end - 1);  // which is no news beside theirs
    } else {
      return skip_passes_without_news(std::min(end, purge_due_));
    }
  }
  if (Time full = next_full(); full < end) {
    full += (end - 1 - full) / p.sched_interval * p.sched_interval;
    last_full_ = last_main_ = full;
  }
}

// The passes before `end` where backfill makes no news of its own: it runs after recalculated priorities, and after main
// passes that pass jobs over.
template <int W>
void Engine<W>::skip_passes_without_news(Time end) {
  for (Time full = next_full();;) {
    Time look = std::min(backfill_due_, recalculation_noticed());
    if (std::min(look, full) >= end) return;
    if (look < full || (look == full && !ticks_first(full))) {
      last_backfill_us_ = look * kSecondUs + last_backfill_us_ % kSecondUs + cycle_us();
      backfill_due_ = last_news_ >= last_backfill_us_ / kSecondUs ? next_look(look) : kNever;
    } else {
      last_full_ = last_main_ = full;
      if (main_passes_over_ != kNever) {
        last_news_ = full;
        backfill_due_ = std::min(backfill_due_, next_look(full + !ticks_first(full)));
      }
      full += params().sched_interval;
    }
  }
}

template <int W>
void Engine<W>::happen(const Due& next) {
  now_ = next.time;
  happening_ = next.kind;
  happen(next.kind);
  happening_ = Happening::kNothing;
}

template <int W>
void Engine<W>::happen(Happening kind) {
  if (kind == Happening::kMain) return main_pass();
  if (kind == Happening::kBackfill) return backfill_pass();
  if (kind == Happening::kPurge) {
    purge_until(now_);
    return news_for_backfill();
  }
  // Of submissions at one time, those of the trace came first.
  if (kind == Happening::kSubmit && next_submit_ < static_cast<int32_t>(trace->by_submit.size())) {
    int32_t job = trace->by_submit[next_submit_];
    if (trace->specs[job].submit == now_) {
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
    case Happening::kBegin: main_wanted_ = review_wanted_ = true; return;
    case Happening::kReservation: return changed();
    case Happening::kNode: return node_action(config->node_changes[subject].node, config->node_changes[subject].action);
    case Happening::kCancel:
      if (int32_t slot = slot_of(subject); slot >= 0) cancel_slot(slot);
      return;
    case Happening::kEnd:
      if (lives_[subject].end_event == event.sequence()) end_by_itself(subject);
      return;
    case Happening::kLimit:
      if (lives_[subject].limit_event == event.sequence()) kill(subject, State::kTimeout);
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

// ---- what users and operators do

// Raises InvalidJob unless a job may be submitted then, with this id.
template <int W>
void Engine<W>::check_new(Time submit, int64_t job_id) const {
  if (submit < now_)
    throw Refusal(Refusal::kInvalidJob, "submit_s is " + std::to_string(submit) + ", in the past (now: " +
                                            std::to_string(now_) + "); leave it out to submit now");
  if (job_id < 1 || find(job_id) >= 0)
    throw Refusal(Refusal::kInvalidJob,
                  "job_id " + std::to_string(job_id) + " is taken or not positive; give another one, or none");
}

template <int W>
int64_t Engine<W>::submit(Submission& job) {
  Spec& spec = job.spec;
  if (spec.submit == kNone) spec.submit = now_;
  if (spec.job_id == kNone) spec.job_id = next_id_;
  check_new(spec.submit, spec.job_id);
  if (job.extras.dependencies)
    for (const Dependency& item : job.extras.dependencies->items)
      if (item.job_id == spec.job_id)
        throw Refusal(Refusal::kInvalidJob, "job " + std::to_string(spec.job_id) + " would wait for itself (" +
                                                job.dependency + "); remove this dependency");
  // Whatever is new goes into a catalogue of our own.
  int32_t index = job_count();
  job.shape.request = -1;
  for (size_t i = 0; i < catalogue->requests.size(); i++)
    if (catalogue->requests[i] == job.request) job.shape.request = static_cast<int>(i);
  spec.shape = job.shape.request < 0 ? -1 : catalogue->find_shape(job.shape);
  spec.person = catalogue->find_person(job.account, job.user);
  if (spec.shape < 0 || spec.person < 0 || job.extras.array != kNone) {
    auto own = std::make_shared<Catalogue>(*catalogue);
    if (spec.shape < 0) {
      job.shape.request = own->request(job.request);
      spec.shape = static_cast<int>(own->shapes.size());
      own->shapes.push_back(job.shape);
    }
    if (spec.person < 0) {
      spec.person = own->person(job.account, job.user);
      fairshare_.stale = true;
    }
    if (job.extras.array != kNone) {
      auto [found, is_new] = own->array_index.try_emplace(job.extras.array, static_cast<int>(own->arrays.size()));
      if (is_new) own->arrays.emplace_back();
      own->arrays[found->second].push_back(index);
      job.extras.array = found->second;
    }
    catalogue = std::move(own);
  }
  if (job.extras.array == kNone) job.extras.array = -1;
  next_id_ = std::max(next_id_, spec.job_id + 1);
  std::pair<int64_t, int32_t> id{spec.job_id, index};
  if (more_ids_.size() == 0 || more_ids_[more_ids_.size() - 1].first < spec.job_id) {
    more_ids_.push(id);
  } else {
    odd_ids_.insert(std::upper_bound(odd_ids_.begin(), odd_ids_.end(), id), id);
  }
  spec.extras = index;
  more_specs_.push({std::make_shared<Spec>(spec), std::make_shared<Extras>(job.extras)});
  if (spec.submit > now_) {
    push(spec.submit, Happening::kSubmit, index);
  } else {
    enter(index);
  }
  return spec.job_id;
}

template <int W>
const Extras* Engine<W>::extras(const Spec& spec) const {
  if (spec.extras < 0) return nullptr;
  auto known = static_cast<int32_t>(trace->specs.size());
  bool of_trace = &spec >= trace->specs.data() && &spec < trace->specs.data() + known;
  return of_trace ? &trace->extras[spec.extras] : more_specs_[spec.extras - known].extras.get();
}

template <int W>
int32_t Engine<W>::find(int64_t job_id) const {
  if (int32_t job = trace->find(job_id); job >= 0) return job;
  int64_t low = 0, high = more_ids_.size();
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (more_ids_[middle].first < job_id) low = middle + 1;
    else high = middle;
  }
  if (low < more_ids_.size() && more_ids_[low].first == job_id) return more_ids_[low].second;
  auto odd = std::lower_bound(odd_ids_.begin(), odd_ids_.end(), std::pair<int64_t, int32_t>{job_id, -1});
  return odd != odd_ids_.end() && odd->first == job_id ? odd->second : -1;
}

template <int W>
int32_t Engine<W>::index_of(int64_t job_id) const {
  int32_t job = find(job_id);
  if (job < 0 || where_.get(job) == 0)
    throw Refusal(Refusal::kUnknownJob, "job " + std::to_string(job_id) +
                                            " has not been submitted yet; look at pending(), running(), finished()");
  return job;
}

template <int W>
Live& Engine<W>::live_in(int64_t job_id, State state) {
  int32_t job = index_of(job_id);
  State is = record_of(job).state;
  if (is != state)
    throw Refusal(Refusal::kSimulation, "job " + std::to_string(job_id) + " is " + kStateNames[static_cast<int>(is)] +
                                            "; this needs one that is " + kStateNames[static_cast<int>(state)]);
  return lives_[slot_of(job)];
}

template <int W>
void Engine<W>::cancel(int64_t job_id) {
  if (int32_t slot = slot_of(index_of(job_id)); slot >= 0) cancel_slot(slot);
}

template <int W>
void Engine<W>::cancel_slot(int32_t slot) {
  if (lives_[slot].state != State::kPending) return kill(slot, State::kCancelled);
  forget_pending(slot);
  finish(slot, State::kCancelled);
}

template <int W>
void Engine<W>::requeue(int64_t job_id) {
  requeue_slot(slot_of(live_in(job_id, State::kRunning).job), State::kRequeued);
}

template <int W>
void Engine<W>::drop_dependency(int64_t job_id) {
  int32_t slot = slot_of(index_of(job_id));
  if (slot < 0 || lives_[slot].state != State::kPending || lives_[slot].dependencies < 0) return;
  lives_[slot].dependencies = -1;
  review(slot);
  changed();
  ask_main();
}

template <int W>
void Engine<W>::hold(int64_t job_id) {
  Live& job = live_in(job_id, State::kPending);
  int32_t slot = slot_of(job.job);
  forget_pending(slot);
  job.held = true;
  to_waiting(slot);
  job.eligible = kNone;
  job.priority = 0;
  job.reason = Reason::kHeld;
  if (job.begin != kNone && job.begin <= now_) job.begin = kNone;
  changed();
}

template <int W>
void Engine<W>::release(int64_t job_id) {
  Live& job = live_in(job_id, State::kPending);
  if (!job.held) return;
  job.held = false;
  waiting_unheld_++;
  job.reason = Reason::kNone;
  dependency_news_ = true;
  changed();
  ask_main();
}

template <int W>
void Engine<W>::set_runtime_end(int64_t job_id, Time end) {
  Live& job = live_in(job_id, State::kRunning);
  if (end < now_)
    throw Refusal(Refusal::kSimulation, "job " + std::to_string(job_id) + " can't end at " + std::to_string(end) +
                                            ": it is " + std::to_string(now_) + " already");
  end_at(slot_of(job.job), end);
}

template <int W>
void Engine<W>::forget_future() {
  future_forgotten_ = true;
  next_submit_ = static_cast<int32_t>(trace->by_submit.size());
  std::erase_if(events_, [](const Event& event) { return only_foreseen(event.kind()); });
  std::make_heap(events_.begin(), events_.end(), std::greater<>());
  for (Live& job : lives_) {
    job.end_event = 0;
    job.runtime_end = kNone;
  }
}

template <int W>
void Engine<W>::suspend(int64_t job_id) {
  Live& job = live_in(job_id, State::kRunning);
  if (!job.end_event) job.runtime_end = kNone;
  job.end_event = job.limit_event = 0;
  job.suspended_since = now_;
  int32_t slot = slot_of(job.job);
  Set nodes = run_ends(slot);
  suspended_.push_back(slot);
  job.state = State::kSuspended;
  take(nodes, request(job), -1);
  touched(job);
  changed();
  ask_main();
}

template <int W>
void Engine<W>::resume(int64_t job_id) {
  Live& job = live_in(job_id, State::kSuspended);
  int32_t slot = slot_of(job.job);
  Set nodes = nodes_of(job);
  if (nodes.without(hosts(shape(job).request) & up_).any()) {
    throw Refusal(Refusal::kSimulation, "job " + std::to_string(job_id) +
                                            " can't be resumed: other jobs, or nobody, can use " + names(nodes) + " now");
  }
  Time for_s = now_ - job.suspended_since;
  job.state = State::kRunning;
  job.suspended += for_s;
  suspended_.erase(std::find(suspended_.begin(), suspended_.end(), slot));
  take(nodes, request(job), 1);
  run_begins(slot, nodes);
  job.started = ++starts_;
  if (job.runtime_end != kNone) end_at(slot, job.runtime_end + for_s);
  watch_limit(slot);
  touched(job);
  changed();
}

template <int W>
void Engine<W>::check_resizable(int64_t job_id) const {
  State is = record_of(index_of(job_id)).state;
  if (is != State::kPending && is != State::kRunning)
    throw Refusal(Refusal::kSimulation, "job " + std::to_string(job_id) + " is " + kStateNames[static_cast<int>(is)] +
                                            "; this needs one that is PENDING or RUNNING");
}

template <int W>
void Engine<W>::resize(int64_t job_id, int64_t count) {
  int32_t slot = slot_of(index_of(job_id));
  Live& job = lives_[slot];
  auto wanted = static_cast<int32_t>(std::min<int64_t>(count, INT32_MAX));
  if (job.state == State::kPending) {
    job.nodes = wanted;
    set_size_parts(job);
    disturb();
    limits_told_ = false;
    if (job.place < 0) demand_[job.shape].least_nodes = std::min(demand_[job.shape].least_nodes, wanted);
    ordered_for_ = kNone;
  } else {
    Set old = nodes_of(job), kept = Set::none();
    int left = wanted;
    for_each_run(old, [&](int first, int length) {
      add_range(kept, first, std::min(length, left));
      left -= std::min(length, left);
    });
    if (count > job.nodes) kept = kept | more_nodes(job, count - job.nodes);
    run_ends(slot);
    take(old, request(job), -1);
    count_use(job, &old, -1);
    job.nodes = wanted;
    set_size_parts(job);
    put_ranges(job, kept);
    take(kept, request(job), 1);
    count_use(job, &kept, 1);
    run_begins(slot, kept);
  }
  changed();
  ask_main();
}

template <int W>
NodeSet<W> Engine<W>::more_nodes(const Live& job, int64_t count) const {
  const Shape& its = shape(job);
  Time until = job.limit == kNone ? kNone : job.start + job.limit + job.suspended;
  if (until == kNone || until == 0) until = now_ + kYear;
  Set free = (hosts(shape(job).request) & up_ & set_of(its.suitable)).without(taken(its.reservation, now_, until));
  free = free.without(nodes_of(job));
  if (free.count() < count)
    throw Refusal(Refusal::kSimulation, "job " + std::to_string(job.job_id) + " can't get " + std::to_string(count) +
                                            " more nodes: " + std::to_string(free.count()) + " are free for it");
  return pick(free, static_cast<int>(count), request(job), free_cpus_, true);
}

template <int W>
void Engine<W>::change_node(int node, NodeChange::Action action) {
  node_action(node, action);
}

template <int W>
void Engine<W>::node_action(int node, NodeChange::Action action) {
  account_energy();
  disturb();
  if (action == NodeChange::kResume) {
    if (!up_.has(node)) {
      up_.add(node);
      for (size_t i = outages_.size(); i-- > 0;) {
        if (outages_[i].node != node) continue;
        outages_[i].end = now_;
        break;
      }
    }
  } else if (up_.has(node)) {
    up_.remove(node);
    outages_.push_back({node, now_, kNone});
  }
  power_ = power();
  if (action == NodeChange::kDown) {
    std::vector<int32_t> there, also;
    for (const Run<W>& run : running_)
      if (run.nodes.has(node)) there.push_back(run.slot);
    std::sort(there.begin(), there.end(), [&](int32_t a, int32_t b) { return lives_[a].started < lives_[b].started; });
    for (int32_t slot : suspended_)
      if (nodes_of(lives_[slot]).has(node)) there.push_back(slot);
    for (int32_t slot : there) {
      if (spec(lives_[slot].job).requeue) requeue_slot(slot, State::kNodeFail);
      else kill(slot, State::kNodeFail);
    }
  }
  changed();
  if (action == NodeChange::kResume) ask_main();
}

// ---- what there is to see

template <int W>
Record Engine<W>::record_of(int32_t job) const {
  int32_t where = where_.get(job);
  if (where == 0) return Record{};
  return where > 0 ? static_cast<const Record&>(lives_[where - 1]) : finished_[-1 - where];
}

template <int W>
Record Engine<W>::job(int64_t job_id) const {
  return record_of(index_of(job_id));
}

template <int W>
std::vector<Record> Engine<W>::in_state(State state) const {
  std::vector<Record> found;
  auto add = [&](const std::vector<int32_t>& slots) {
    for (int32_t slot : slots) found.push_back(lives_[slot]);
  };
  if (state == State::kPending) {
    add(waiting_);
    add(fresh_);
    for (const Queued& job : queue_) found.push_back(lives_[job.slot]);
  } else if (state == State::kSuspended) {
    add(suspended_);
  } else {
    for (const Run<W>& run : running_) found.push_back(lives_[run.slot]);
  }
  std::sort(found.begin(), found.end(), [](const Record& a, const Record& b) { return a.job_id < b.job_id; });
  return found;
}

template <int W>
bool Engine<W>::is_competing(int64_t job_id) const {
  int32_t slot = slot_of(index_of(job_id));
  return slot >= 0 && lives_[slot].state == State::kPending && lives_[slot].place < 0;
}

template <int W>
std::vector<Range> Engine<W>::ranges(const Record& record) const {
  std::vector<Range> found;
  for (int32_t i = 0; i < record.range_count; i++) found.push_back(ranges_[record.ranges + i]);
  return found;
}

// ---- what happens

template <int W>
int32_t Engine<W>::new_live(int32_t index) {
  const Spec& asked = spec(index);
  int32_t slot;
  if (spare_.empty()) {
    slot = static_cast<int32_t>(lives_.size());
    lives_.emplace_back();
  } else {
    slot = spare_.back();
    spare_.pop_back();
    lives_[slot] = Live{};
  }
  Live& job = lives_[slot];
  job.job = index;
  job.job_id = asked.job_id;
  job.submit = now_;
  job.begin = asked.begin;
  job.limit = asked.limit;
  job.nodes = asked.nodes;
  job.held = asked.held;
  job.shape = asked.shape;
  job.person = asked.person;
  job.qos = asked.qos;
  job.partition = catalogue->shapes[asked.shape].partition;
  if (const Extras* more = extras(asked)) {
    job.array = static_cast<int32_t>(more->array);
    job.own_priority = more->priority != kNone;
  }
  if (demand_.size() < catalogue->shapes.size()) demand_.resize(catalogue->shapes.size());
  set_size_parts(job);
  while (!params().linear && fits_.size() < catalogue->requests.size()) {
    fits_.push_back(Set::none());
    note_fit(static_cast<int>(fits_.size()) - 1, 0, static_cast<int>(config->nodes.size()));
  }
  return slot;
}

// Its dependencies; those on jobs that nobody knows are dropped.
template <int W>
void Engine<W>::tie(int32_t slot) {
  const Extras* more = extras(spec(lives_[slot].job));
  if (!more || !more->dependencies) return;
  auto known = std::make_shared<Dependencies>(*more->dependencies);
  auto unknown = [&](const Dependency& item) {
    if (auto array = catalogue->array_index.find(item.job_id); array != catalogue->array_index.end())
      for (int32_t task : catalogue->arrays[array->second])
        if (where_.get(task) != 0) return false;
    int32_t other = find(item.job_id);
    return other < 0 || where_.get(other) == 0;
  };
  if (std::erase_if(known->items, unknown) && known->any_of) known->items.clear();
  if (known->items.empty()) return;
  for (const Dependency& item : known->items) {
    if (item.delay) delayed_++;
    int32_t other = find(item.job_id);
    if (int32_t its = other < 0 ? -1 : slot_of(other); its >= 0) lives_[its].watched = true;
  }
  lives_[slot].dependencies = static_cast<int32_t>(dependency_log_.push(std::move(known)));
}

// The job is known from now on, and waits.
template <int W>
void Engine<W>::admit(int32_t slot) {
  const Live& job = lives_[slot];
  where_.at(job.job) = slot + 1;
  to_waiting(slot);
  if (config->any_submit_limit)
    for (int qos : limit_set(job).counted) use_of(qos, catalogue->persons[job.person].user).submitted++;
  const Extras* more = extras(spec(job.job));
  if (more && more->cancel != kNone) push(std::max(more->cancel, now_), Happening::kCancel, job.job);
  // An array's id may be, or become, what a dependency waits for.
  watch_arrays_ = dependency_log_.size() && !catalogue->arrays.empty();
  if (watch_arrays_ && job.array >= 0) dependency_news_ = true;
}

template <int W>
void Engine<W>::enter(int32_t index) {
  int32_t slot = new_live(index);
  const LimitSet& set = limit_set(lives_[slot]);
  int user = catalogue->persons[lives_[slot].person].user;
  bool refused = set.submit_qos >= 0 && use_of(set.submit_qos, user).submitted >= set.submit_most;
  tie(slot);
  admit(slot);
  if (refused) {
    forget_pending(slot);
    finish(slot, State::kCancelled, Reason::kMaxSubmit);
  } else {
    if (minds_gpus()) tested_at_submission(lives_[slot]);
    queued(slot);
  }
}

template <int W>
void Engine<W>::queued(int32_t slot) {
  Time begin = lives_[slot].begin;
  if (begin != kNone && begin > now_) push(begin, Happening::kBegin, lives_[slot].job);
  review(slot);
  changed();
  ask_main();
}

template <int W>
void Engine<W>::to_waiting(int32_t slot) {
  lives_[slot].place = static_cast<int32_t>(waiting_.size());
  waiting_.push_back(slot);
  waiting_unheld_ += !lives_[slot].held;
}

template <int W>
void Engine<W>::leave_waiting(int32_t slot) {
  int32_t place = lives_[slot].place, last = waiting_.back();
  waiting_[place] = last;
  lives_[last].place = place;
  waiting_.pop_back();
  lives_[slot].place = -1;
  waiting_unheld_ -= !lives_[slot].held;
}

// A waiting job competes for nodes from now on.
template <int W>
void Engine<W>::compete(int32_t slot) {
  leave_waiting(slot);
  Live& job = lives_[slot];
  fresh_.push_back(slot);
  unmarked_.push_back(slot);
  main_quiet_ = limits_told_ = false;
  order_changed_ = true;
  Demand& demand = demand_[job.shape];
  demand.jobs++;
  demand.least_nodes = std::min(demand.least_nodes, job.nodes);
  competing_of_[job.partition]++;
  special_ += job.array >= 0 || shape(job).reservation >= 0;
}

template <int W>
void Engine<W>::forget_pending(int32_t slot) {
  Live& job = lives_[slot];
  if (job.place >= 0) return leave_waiting(slot);
  disturb();
  std::erase(fresh_, slot);
  auto at = std::find_if(queue_.begin(), queue_.end(), [slot](const Queued& other) { return other.slot == slot; });
  if (at != queue_.end()) queue_.erase(at);
  order_changed_ = true;
  Demand& demand = demand_[job.shape];
  if (--demand.jobs == 0) demand.least_nodes = INT32_MAX;
  competing_of_[job.partition]--;
  special_ -= job.array >= 0 || shape(job).reservation >= 0;
}

template <int W>
void Engine<W>::review(int32_t slot) {
  Live& job = lives_[slot];
  job.reason = kept_back_by(job);
  if (job.reason == Reason::kNone) {
    job.eligible = job.begin == kNone ? now_ : std::max(job.begin, job.submit);
    compete(slot);
  } else if (job.begin != kNone && job.begin > now_) {
    next_begin_ = std::min(next_begin_, job.begin);
  }
  job.priority = priority_of(job, calculated(now_));
}

template <int W>
void Engine<W>::review_all() {
  if (!review_wanted_) return;
  review_wanted_ = false;
  // Nothing else can change what keeps a job back.
  if (!dependency_news_ && now_ < next_begin_ && !delayed_) return;
  dependency_news_ = false;
  next_begin_ = kNever;
  std::vector<int32_t> all = waiting_;
  for (int32_t slot : all) review(slot);
}

template <int W>
Reason Engine<W>::kept_back_by(Live& job) {
  if (job.held) return Reason::kHeld;
  Reason reason = Reason::kNone;
  if (job.dependencies >= 0 && review_dependencies(job, reason)) return reason;
  return job.begin != kNone && job.begin > now_ ? Reason::kBeginTime : Reason::kNone;
}

// 0: waiting, 1: met, -1: never.
template <int W>
int Engine<W>::verdict(const Dependency& item) const {
  bool started = true, over = true, ok = true, any = false;
  Time by = now_ - item.delay;
  auto look = [&](int32_t job) {
    int32_t where = where_.get(job);
    if (where == 0) return;
    any = true;
    const Record& its = where > 0 ? static_cast<const Record&>(lives_[where - 1]) : finished_[-1 - where];
    started = started && (is_over(its.state) || (its.start != kNone && its.start <= by));
    over = over && is_over(its.state);
    ok = ok && its.state == State::kCompleted;
  };
  if (auto array = catalogue->array_index.find(item.job_id); array != catalogue->array_index.end())
    for (int32_t task : catalogue->arrays[array->second]) look(task);
  if (!any) look(find(item.job_id));
  switch (item.kind) {
    case Dependency::kAfter: return started || over;
    case Dependency::kAny: return over;
    case Dependency::kOk: return over && ok ? 1 : over ? -1 : 0;
    default: return over && !ok ? 1 : over ? -1 : 0;
  }
}

// Whether its dependencies keep the job back. What was met once stays met.
template <int W>
bool Engine<W>::review_dependencies(Live& job, Reason& reason) {
  const Dependencies& old = *dependency_log_[job.dependencies];
  Dependencies left{{}, old.any_of};
  bool changed = false, met = false, all_never = true, any_never = false;
  for (const Dependency& item : old.items) {
    int is = verdict(item);
    if (is == 1) {
      met = changed = true;
      continue;
    }
    left.items.push_back(item);
    left.items.back().failed = is < 0;
    changed = changed || item.failed != (is < 0);
    all_never = all_never && is < 0;
    any_never = any_never || is < 0;
  }
  if (left.items.empty() || (old.any_of && met)) {
    job.dependencies = -1;
    return false;
  }
  bool never = old.any_of ? all_never : any_never;
  reason = never ? Reason::kNeverSatisfied : Reason::kDependency;
  if (changed)
    job.dependencies = static_cast<int32_t>(dependency_log_.push(std::make_shared<Dependencies>(std::move(left))));
  return true;
}

template <int W>
void Engine<W>::start_job(int32_t slot, const Set& nodes, uint8_t scheduler) {
  Live& job = lives_[slot];
  order_changed_ = true;
  Demand& demand = demand_[job.shape];
  if (--demand.jobs == 0) demand.least_nodes = INT32_MAX;
  competing_of_[job.partition]--;
  special_ -= job.array >= 0 || shape(job).reservation >= 0;
  job.state = State::kRunning;
  job.reason = Reason::kNone;
  job.start = now_;
  job.scheduler = scheduler;
  job.started = ++starts_;
  put_ranges(job, nodes);
  take(nodes, request(job), 1);
  count_use(job, &nodes, 1);
  run_begins(slot, nodes);
  if (job.array >= 0) tasks_running(job.array)++;
  if (Time runtime = spec(job.job).runtime; runtime != kNone && !future_forgotten_) end_at(slot, now_ + runtime);
  watch_limit(slot);
  if (delayed_) {
    for (int32_t other : waiting_) {
      if (lives_[other].dependencies < 0) continue;
      for (const Dependency& item : dependency_log_[lives_[other].dependencies]->items)
        if (item.delay) push(now_ + item.delay, Happening::kBegin, lives_[other].job);
    }
  }
  touched(job);
  tell(true, job);
  changed();
}

template <int W>
void Engine<W>::end_at(int32_t slot, Time end) {
  lives_[slot].runtime_end = end;
  lives_[slot].end_event = push(end, Happening::kEnd, slot);
}

// It is killed at the first check from its limit's end on, or after its reservation's (ResvOverRun=0).
template <int W>
void Engine<W>::watch_limit(int32_t slot) {
  Live& job = lives_[slot];
  Time last = job.limit == kNone ? kNever : job.start + job.limit + job.suspended;
  if (int reservation = shape(job).reservation; reservation >= 0)
    last = std::min(last, config->reservations[reservation].end + 1);
  if (last == kNever) return;
  Time killed = start_ + round_up(last - start_, params().limit_check);
  job.limit_event = push(std::max(killed, now_), Happening::kLimit, slot);
}

template <int W>
void Engine<W>::end_by_itself(int32_t slot) {
  const Live& job = lives_[slot];
  bool over_limit = job.limit != kNone && now_ > job.start + job.limit + job.suspended;
  bool failing = spec(job.job).failing;
  vacate(slot);
  finish(slot, over_limit ? State::kTimeout : failing ? State::kFailed : State::kCompleted);
  ask_main();
}

template <int W>
void Engine<W>::kill(int32_t slot, State state) {
  vacate(slot);
  finish(slot, state);
  if (params().defer) ask_main();
  else main_due_ = now_;
}

template <int W>
void Engine<W>::requeue_slot(int32_t slot, State state) {
  vacate(slot);
  Live& job = lives_[slot];
  Record run = job;
  run.state = state;
  run.end = now_;
  cut_short_.push(run);
  job.state = State::kPending;
  job.submit = now_;
  job.begin = now_ + params().requeue_delay;
  job.eligible = job.start = kNone;
  job.ranges = 0;
  job.range_count = 0;
  job.scheduler = 0;
  job.suspended = 0;
  job.restarts++;
  to_waiting(slot);
  touched(job);
  tell(false, run);
  queued(slot);
}

template <int W>
void Engine<W>::vacate(int32_t slot) {
  Live& job = lives_[slot];
  Set nodes;
  if (job.state == State::kSuspended) {
    suspended_.erase(std::find(suspended_.begin(), suspended_.end(), slot));
    nodes = nodes_of(job);
  } else {
    nodes = run_ends(slot);
    take(nodes, request(job), -1);
  }
  count_use(job, &nodes, -1);
  if (job.array >= 0) tasks_running(job.array)--;
  job.end_event = job.limit_event = 0;
  job.runtime_end = kNone;
}

template <int W>
void Engine<W>::finish(int32_t slot, State state, Reason reason) {
  Live& job = lives_[slot];
  job.state = state;
  job.end = now_;
  job.reason = Reason::kNone;
  if (config->any_submit_limit)
    for (int qos : limit_set(job).counted) use_of(qos, catalogue->persons[job.person].user).submitted--;
  tell(false, job);
  job.reason = reason;
  where_.at(job.job) = -1 - static_cast<int32_t>(finished_.push(job));
  if (purge_due_ == kNever) purge_due_ = purge_of(now_);
  touched(job);
  job.state = state;
  spare_.push_back(slot);
  changed();
}

// ---- what is taken

template <int W>
void Engine<W>::put_ranges(Live& job, const Set& nodes) {
  job.ranges = ranges_.size();
  for_each_run(nodes, [&](int first, int length) { ranges_.push({first, length}); });
  job.range_count = static_cast<int32_t>(ranges_.size() - job.ranges);
}

template <int W>
NodeSet<W> Engine<W>::nodes_of(const Record& job) const {
  Set nodes = Set::none();
  for (int32_t i = 0; i < job.range_count; i++) {
    const Range& range = ranges_[job.ranges + i];
    add_range(nodes, range.first, range.length);
  }
  return nodes;
}

template <int W>
std::string Engine<W>::names(const Set& nodes) const {
  std::string all;
  for_each_run(nodes, [&](int first, int length) {
    for (int i = first; i < first + length; i++) all += (all.empty() ? "" : ", ") + config->node_names[i];
  });
  return all;
}

template <int W>
void Engine<W>::run_begins(int32_t slot, const Set& nodes) {
  const Live& job = lives_[slot];
  Run<W> run{job.start + (job.limit == kNone ? kYear : job.limit) + job.suspended, job.job_id, slot, shape(job).request,
             nodes};
  running_.insert(std::upper_bound(running_.begin(), running_.end(), run), run);
  run_changes_++;
}

template <int W>
Run<W>& Engine<W>::run_of(const Live& job) {
  Run<W> like;
  like.end = job.start + (job.limit == kNone ? kYear : job.limit) + job.suspended;
  like.job_id = job.job_id;
  return *std::lower_bound(running_.begin(), running_.end(), like);
}

template <int W>
NodeSet<W> Engine<W>::run_ends(int32_t slot) {
  Run<W>& run = run_of(lives_[slot]);
  Set nodes = run.nodes;
  running_.erase(running_.begin() + (&run - running_.data()));
  run_changes_++;
  return nodes;
}

template <int W>
void Engine<W>::take(const Set& nodes, const Request& request, int sign) {
  disturb();
  if (config->draws_power) account_energy();
  if (params().linear) {
    idle_ = sign > 0 ? idle_.without(nodes) : idle_ | nodes;
  } else {
    if (request.whole) shared_ = sign > 0 ? shared_.without(nodes) : shared_ | nodes;
    for_each_run(nodes, [&](int first, int length) {
      for (int i = first; i < first + length; i++) {
        const Node& node = config->nodes[i];
        free_cpus_[i] -= sign * (request.whole ? node.cpus : request.cpus);
        free_memory_[i] -= sign * (request.whole ? node.memory : request.memory);
        free_gpus_[i] -= sign * (request.whole ? node.gpus : request.gpus);
        jobs_on_[i] += sign;
        if (jobs_on_[i]) idle_.remove(i);
        else idle_.add(i);
      }
      for (int item = 0; item < static_cast<int>(fits_.size()); item++) note_fit(item, first, length);
    });
  }
  if (config->draws_power) power_ = power();
}

template <int W>
double Engine<W>::power() const {
  double power_w = 0.0;
  if (!config->draws_power) return power_w;
  for (int i = 0; i < static_cast<int>(config->nodes.size()); i++) {
    if (!idle_.has(i)) power_w += config->nodes[i].busy_w;
    else if (up_.has(i)) power_w += config->nodes[i].idle_w;
  }
  return power_w;
}

// On which of these nodes there is room for a request now.
template <int W>
void Engine<W>::note_fit(int request, int first, int length) {
  const Request& asked = catalogue->requests[request];
  for (int i = first; i < first + length; i++) {
    uint64_t fits = free_cpus_[i] >= asked.cpus && free_memory_[i] >= asked.memory && free_gpus_[i] >= asked.gpus;
    uint64_t& word = fits_[request].word[i >> 6];
    word = (word & ~(uint64_t{1} << (i & 63))) | fits << (i & 63);
  }
}

// slurmctld sees whether a new job could ever run.
template <int W>
void Engine<W>::tested_at_submission(const Live& job) {
  const Shape& its = shape(job);
  Set usable = up_ & set_of(its.suitable), open = usable & (request(job).whole ? idle_ : shared_);
  tried(set_of(config->partitions[job.partition].nodes));
  tested(open.count() >= job.nodes ? open : usable, its.request);
}

// On these nodes there was room for a job, in a test.
template <int W>
void Engine<W>::tested(const Set& nodes, int request) {
  const Request& asked = catalogue->requests[request];
  if (!asked.gpus) return;
  tried(nodes);
  for (size_t gpus = 1; gpus < near_.size(); gpus++) {
    if (asked.whole) near_[gpus] = near_[gpus] | (nodes & set_of(config->by_gpus[gpus]));
    else if (gpus == static_cast<size_t>(std::min(asked.gpus, kMostGpus))) near_[gpus] = near_[gpus] | nodes;
  }
}

// Lower Weight first (select/linear forgets weights when it plans); `cpus`: free ones, for select/cons_tres.
template <int W>
NodeSet<W> Engine<W>::pick(Set free, int count, const Request& request, const std::vector<int64_t>& cpus,
                          bool starts, bool later) const {
  const auto& levels = config->levels;
  Set among = Set::none();
  if (params().linear) {
    if (levels.size() == 1 || !starts) return pick_nodes(free, count);
    for (const auto& level : levels) {
      among = among | (free & set_of(level));
      if (among.count() >= count) break;
    }
    return pick_nodes(among, count);
  }
  Set picked = Set::none();
  while (count > 0) {
    for (const auto& level : levels)
      if (among = free & set_of(level); among.any()) break;
    // Then more GPUs first: a whole node's, or those that tests counted.
    for (size_t gpus = near_.size(); gpus-- > 1;) {
      if (request.gpus ? !request.whole : starts) break;
      Set more = among & (request.gpus ? set_of(config->by_gpus[gpus]) : near_[gpus]);
      if (!more.any()) continue;
      among = more;
      break;
    }
    Set some;
    if (later && params().busy_nodes) {
      Set busy = among.without(idle_);
      some = first_nodes(busy.any() ? busy : among, count);
    } else {
      // For a job with GPUs each node counts with the CPUs that the job would take there.
      some = request.gpus ? pick_sharing(among, count, Same{request.cpus}) : pick_sharing(among, count, cpus);
    }
    picked = picked | some;
    free = free.without(some);
    count -= some.count();
  }
  return picked;
}

template <int W>
NodeSet<W> Engine<W>::taken(int reservation, Time from, Time to) const {
  Set nodes = Set::none();
  for (int i = 0; i < static_cast<int>(config->reservations.size()); i++) {
    const Reservation& other = config->reservations[i];
    if (i != reservation && other.start < to && other.end > from) nodes = nodes | set_of(other.nodes);
  }
  return nodes;
}

// What it uses; `nodes` null: would use, as far as known before it starts.
template <int W>
int64_t Engine<W>::use(const Live& job, Kind kind, const Set* nodes) const {
  if (kind == kJobs) return 1;
  if (kind == kNodes) return job.nodes;
  const Request& each = request(job);
  if (!nodes) return job.nodes * (kind == kCpus ? spec(job.job).cpus : spec(job.job).gpus);
  if (!each.whole) return job.range_count ? nodes->count() * (kind == kCpus ? each.cpus : each.gpus) : 0;
  int64_t total = 0;
  for_each_run(*nodes, [&](int first, int length) {
    for (int i = first; i < first + length; i++) total += kind == kCpus ? config->nodes[i].cpus : config->nodes[i].gpus;
  });
  return total;
}

template <int W>
QosUse& Engine<W>::use_of(int qos, int user) {
  size_t at = static_cast<size_t>(user + 1) * config->qos_count() + qos;
  if (at >= use_.size()) use_.resize((static_cast<size_t>(user) + 2) * config->qos_count());
  return use_[at];
}

template <int W>
void Engine<W>::count_use(const Live& job, const Set* nodes, int sign) {
  disturb();
  limits_told_ = false;
  if (config->any_limit) {
    int user = catalogue->persons[job.person].user;
    for (int kind = 0; kind < kKinds; kind++) {
      int64_t amount = sign * use(job, static_cast<Kind>(kind), nodes);
      for (int qos : limit_set(job).counted) {
        use_of(qos, -1).used[kind] += amount;
        use_of(qos, user).used[kind] += amount;
      }
    }
    if (jobs_of_person_.size() < catalogue->persons.size()) jobs_of_person_.resize(catalogue->persons.size());
    jobs_of_person_[job.person] += sign;
  }
  if (fairshare_.on) fairshare_.count(*catalogue, job.person, sign * use(job, kCpus, nodes), now_);
}

// The limit that keeps it from starting; kNone: none does.
template <int W>
Reason Engine<W>::limit_reached(const Live& job) const {
  if (!config->any_limit) return Reason::kNone;
  int user = catalogue->persons[job.person].user;
  for (const QosLimit& limit : limit_set(job).limits) {
    size_t at = static_cast<size_t>(limit.own ? user + 1 : 0) * config->qos_count() + limit.qos;
    int64_t used = at < use_.size() ? use_[at].used[limit.kind] : 0;
    if (used + use(job, limit.kind, nullptr) > limit.most) return limit.reason;
  }
  if (limit_set(job).max_jobs_per_user) return Reason::kNone;  // it goes before the association's
  int64_t most = catalogue->persons[job.person].max_jobs;
  auto person = static_cast<size_t>(job.person);
  int64_t running = person < jobs_of_person_.size() ? jobs_of_person_[person] : 0;
  return most != kNone && running + 1 > most ? Reason::kAssocMaxJobs : Reason::kNone;
}

template <int W>
int32_t& Engine<W>::tasks_running(int32_t array) {
  auto at = std::lower_bound(tasks_running_.begin(), tasks_running_.end(), std::pair<int32_t, int32_t>{array, INT32_MIN});
  if (at == tasks_running_.end() || at->first != array) at = tasks_running_.insert(at, {array, 0});
  return at->second;
}

template <int W>
bool Engine<W>::throttled(const Live& job, int64_t planned) const {
  if (job.array < 0) return false;
  const Extras* more = extras(spec(job.job));
  if (more->throttle == kNone) return false;
  auto at = std::lower_bound(tasks_running_.begin(), tasks_running_.end(), std::pair<int32_t, int32_t>{job.array, INT32_MIN});
  int64_t running = at != tasks_running_.end() && at->first == job.array ? at->second : 0;
  return running + planned >= more->throttle;
}

// ---- the order of the queue

// priority/multifactor, truncated, at least 1; 0 is a held job's. With priority/basic all are 1.
template <int W>
int64_t Engine<W>::priority_of(const Live& job, Time calculated, double share_part) const {
  if (job.held) return 0;
  if (future_forgotten_ && job.priority > 0) return job.priority;
  const Params& p = params();
  if (job.own_priority) return extras(spec(job.job))->priority;
  if (!p.multifactor) return 1;
  Time since = p.accrue_always ? job.submit : job.eligible;
  double age = 0.0;
  if (since != kNone)
    age = std::min(1.0, static_cast<double>(std::max<Time>(0, calculated - since)) / static_cast<double>(p.max_age));
  double age_part = static_cast<double>(p.weight_age) * age;
  bool recalculated = job.eligible != kNone && calculated > job.eligible;
  double size_part = recalculated ? job.size_part : job.asked_size_part;
  double sum = age_part + share_part + size_part + config->partitions[job.partition].priority_part + config->qos_part[job.qos];
  return std::max<int64_t>(1, static_cast<int64_t>(sum));
}

// Of its priority. The mean of its parts of the cluster's nodes and CPUs; of a job on whole nodes all their CPUs count from
// the first recalculation on, before that (`asked`) those that it asks for.
template <int W>
double Engine<W>::size_part(const Live& job, bool asked) const {
  const Params& p = params();
  auto nodes = static_cast<int64_t>(config->nodes.size());
  double size = static_cast<double>(p.favor_small ? nodes - job.nodes : job.nodes) / static_cast<double>(nodes);
  if (asked || !request(job).whole) {
    int64_t cpus = job.nodes * spec(job.job).cpus;
    size = (size + static_cast<double>(p.favor_small ? config->cpus - cpus : cpus) / static_cast<double>(config->cpus)) / 2;
  }
  return static_cast<double>(p.weight_size) * size;
}

// Priorities are refreshed each PriorityCalcPeriod; between, only what is new is put in its place.
template <int W>
void Engine<W>::order_queue() {
  Time of = calculated(now_);
  bool all = ordered_for_ == kNone || (priorities_move() && of != ordered_for_);
  if (fairshare_.on && order_changed_ && (fairshare_.stale || fairshare_.version != ordered_shares_)) all = true;
  ordered_for_ = of;
  order_changed_ = false;
  if (all) recalculate(of);
  auto comes_first = [this](const Queued& a, const Queued& b) { return before(a.slot, b.slot); };
  for (int32_t slot : fresh_) {
    Queued job = queued_as(slot);
    if (queue_.empty() || comes_first(queue_.back(), job)) {
      queue_.push_back(job);
    } else {
      auto at = queue_.insert(std::upper_bound(queue_.begin(), queue_.end(), job, comes_first), job);
      reordered(at - queue_.begin());
    }
    if (quiet_until_ != kNone) unseen_.push_back(slot);
  }
  fresh_.clear();
}

template <int W>
void Engine<W>::recalculate(Time of) {
  Scratch& room = scratch();
  for (int32_t slot : waiting_) lives_[slot].priority = priority_of(lives_[slot], of);
  for (int32_t slot : fresh_) lives_[slot].priority = priority_of(lives_[slot], of);
  if (params().min_prio_reserve) disturb();
  constexpr double kUnknown = -1.0;
  room.share_parts.assign(catalogue->persons.size(), kUnknown);
  room.ranks.resize(queue_.size());
  bool sorted = true;
  for (size_t i = 0; i < queue_.size(); i++) {
    Live& job = lives_[queue_[i].slot];
    double& share = room.share_parts[job.person];
    if (share == kUnknown) share = share_part(job.person, of);
    job.priority = priority_of(job, of, share);
    queue_[i].nodes = job.nodes;
    room.ranks[i] = rank(job);
    sorted = sorted && !(i > 0 && room.ranks[i] < room.ranks[i - 1]);
  }
  ordered_shares_ = fairshare_.version;
  if (sorted) return;  // priorities moved and the order did not: passes go on as before
  // Few change places: those out of order are taken out, with their neighbours before them, and merged in again.
  auto before = [&](int a, int b) { return room.ranks[a] < room.ranks[b]; };
  room.kept.clear();
  room.moved.clear();
  for (int i = 0; i < static_cast<int>(queue_.size()); i++) {
    if (room.kept.empty() || !before(i, room.kept.back())) {
      room.kept.push_back(i);
      continue;
    }
    room.moved.insert(room.moved.end(), {room.kept.back(), i});
    room.kept.pop_back();
  }
  std::sort(room.moved.begin(), room.moved.end(), before);
  room.order.resize(queue_.size());
  std::merge(room.kept.begin(), room.kept.end(), room.moved.begin(), room.moved.end(), room.order.begin(), before);
  room.queue = queue_;
  size_t first = 0;
  while (room.order[first] == static_cast<int32_t>(first)) first++;
  for (size_t i = first; i < queue_.size(); i++) queue_[i] = room.queue[room.order[i]];
  reordered(first);
}

// ---- when the schedulers run

template <int W>
void Engine<W>::ask_main() {
  if (main_due_ != kNever) return;
  Time last_full = now_ - (now_ - start_) % params().sched_interval;
  main_due_ = std::max(now_, std::max(last_main_, last_full) + params().batch_sched_delay);
}

template <int W>
Time Engine<W>::next_full() const {
  Time done = std::max(last_full_, now_ - 1);
  return start_ + round_up(done + 1 - start_, params().sched_interval);
}

// When backfill notices: from bf_interval after its last pass on it looks each second.
template <int W>
Time Engine<W>::next_look(Time news) const {
  Time first_us = last_backfill_us_ + params().bf_interval * kSecondUs;
  return std::max(first_us, news * kSecondUs + first_us % kSecondUs) / kSecondUs;
}

// When slurmctld deletes the record of a job that ended then.
template <int W>
Time Engine<W>::purge_of(Time ended) const {
  Time age = params().min_job_age;
  return age ? start_ + round_up(ended + age - start_, std::min<Time>(60, std::max<Time>(10, age))) : kNever;
}

template <int W>
void Engine<W>::purge_until(Time now) {
  while (purge_due_ <= now) purge_due_ = ++purged_ < finished_.size() ? purge_of(finished_[purged_].end) : kNever;
}

// When backfill notices the first recalculation of priorities since its last pass.
template <int W>
Time Engine<W>::recalculation_noticed() const {
  Time since = last_backfill_us_ / kSecondUs - start_;
  return std::max(now_, next_look(start_ + round_up(since, params().calc_period) + 1));
}

// How long a backfill pass takes now; without bf_cycle_us as typical_cycle_us in config.py.
template <int W>
Time Engine<W>::cycle_us() const {
  if (params().bf_cycle_us != kNone) return params().bf_cycle_us;
  auto queued = static_cast<Time>(queue_.size()), running = static_cast<Time>(running_.size());
  return queued * (9000 + 400 * running + 5 * queued * running) / 1000;
}

template <int W>
void Engine<W>::news_for_backfill() {
  last_news_ = now_;
  if (!params().backfill) return;
  bool ticked = happening_ == Happening::kLimit || happening_ == Happening::kMain || happening_ == Happening::kPurge;
  bool after_its_look = ticked && !ticks_first(now_);
  backfill_due_ = std::min(backfill_due_, next_look(now_ + after_its_look));
}

}  // namespace slurm_sim
