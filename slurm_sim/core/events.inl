// What happens to jobs and nodes, by itself or by a command. It moves jobs between `waiting_`, `fresh_`, `queue_`, `running_`
// and `finished_`; nodes and limits it changes through resources.inl alone.
#pragma once
#include "engine.hpp"

namespace slurm_sim {

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
    forget_test(slot);
  }
  Live& job = lives_[slot];
  job.job = index;
  job.job_id = asked.job_id;
  job.submit = clock_.now;
  job.begin = asked.begin;
  job.limit = asked.limit;
  job.nodes = asked.nodes;
  job.held = asked.held;
  job.shape = asked.shape;
  job.person = asked.person;
  job.qos = asked.qos;
  job.partition = catalogue->shapes[asked.shape].partition;
  if (const Extras* more = extras(asked)) {
    job.several = !more->choices.empty();
    job.array = static_cast<int32_t>(more->array);
    job.own_priority = more->priority != kNone;
    job.nice = more->nice != 0;
    job.flexible = more->time_min != kNone;
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
  Live& job = lives_[slot];
  where_.at(job.job) = slot + 1;
  to_waiting(slot);
  give_priority(job);
  if (config->any_submit_limit)
    for_each_use(job, [](QosUse& use) { use.submitted++; });
  const Extras* more = extras(spec(job.job));
  if (more && more->cancel != kNone) push(std::max(more->cancel, clock_.now), Happening::kCancel, job.job);
  // An array's id may be, or become, what a dependency waits for.
  watch_arrays_ = dependency_log_.size() && !catalogue->arrays.empty();
  if (watch_arrays_ && job.array >= 0) dependency_news_ = true;
}

template <int W>
void Engine<W>::enter(int32_t index) {
  int32_t slot = new_live(index);
  Reason refused = Reason::kNone;
  for (const SubmitLimit& limit : limit_set(lives_[slot]).submit)
    if (refused == Reason::kNone && usage_.of(*config, *catalogue, limit.qos, limit.scope, lives_[slot].person).submitted >= limit.most)
      refused = limit.reason;
  tie(slot);
  admit(slot);
  if (refused != Reason::kNone) {
    forget_pending(slot);
    finish(slot, State::kCancelled, refused);
  } else {
    if (leaves_traces()) tested_at_submission(lives_[slot]);
    queued(slot);
    if (Live& job = lives_[slot]; job.reason == Reason::kNone) set_reason(job, jobs_limit_reached(job));
  }
}

template <int W>
void Engine<W>::queued(int32_t slot) {
  Time begin = lives_[slot].begin;
  if (begin != kNone && begin > clock_.now) push(begin, Happening::kBegin, lives_[slot].job);
  review(slot);
  changed();
  clock_.ask_main(params());
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
  skips_.main_quiet = skips_.limits_noted = false;
  untested_ = untested_ || awaits_test(job);
  if (leaves_traces()) disturb();  // also if this job is the first for which they matter
  order_changed_ = true;
  queue_changes_++;
  changed_.add(slot);
  for_each_choice(job, [&](int32_t choice) {
    Demand& demand = demand_[choice];
    demand.jobs++;
    demand.least_nodes = std::min(demand.least_nodes, job.nodes);
    competing_of_[catalogue->shapes[choice].partition]++;
  });
  count_special(job, 1);
}

template <int W>
void Engine<W>::no_longer_competes(const Live& job) {
  for_each_choice(job, [&](int32_t choice) {
    Demand& demand = demand_[choice];
    if (--demand.jobs == 0) demand.least_nodes = INT32_MAX;
    competing_of_[catalogue->shapes[choice].partition]--;
  });
  count_special(job, -1);
}

template <int W>
void Engine<W>::forget_pending(int32_t slot) {
  Live& job = lives_[slot];
  if (job.place >= 0) return leave_waiting(slot);
  disturb();
  std::erase(fresh_, slot);
  std::erase_if(queue_, [slot](const Queued& other) { return other.slot == slot; });
  order_changed_ = true;
  queue_changes_++;
  changed_.add(slot);
  no_longer_competes(job);
}

template <int W>
void Engine<W>::review(int32_t slot) {
  Live& job = lives_[slot];
  set_reason(job, kept_back_by(job));
  if (job.reason == Reason::kNone) {
    job.eligible = job.begin == kNone ? clock_.now : std::max(job.begin, job.submit);
    if (job.accrues == kNone) job.accrues = job.eligible;
    compete(slot);
  } else if (job.begin != kNone && job.begin > clock_.now) {
    next_begin_ = std::min(next_begin_, job.begin);
  }
  set_priority(job, priority_of(job, clock_.see_calculated(clock_.now - 1)));
}

// As a pass begins: whether a pending job has a reason that slurmctld now notes (cluster.py).
template <int W>
bool Engine<W>::note_reasons() {
  if (!unnoted_) return false;
  unnoted_ = false;
  bool news = false;
  auto note = [&](Live& job) {
    if (!is_noted(job.reason) || job.reason == job.noted) return;
    job.noted = job.reason;
    news = true;
  };
  for (const Queued& queued : queue_)
    if (queued.slot >= 0) note(lives_[queued.slot]);
  for (const auto* slots : {&fresh_, &waiting_})
    for (int32_t slot : *slots) note(lives_[slot]);
  return news;
}

template <int W>
void Engine<W>::review_all() {
  if (!clock_.review_wanted) return;
  clock_.review_wanted = false;
  // Nothing else can change what keeps a job back.
  if (!dependency_news_ && clock_.now < next_begin_ && !delayed_) return;
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
  return job.begin != kNone && job.begin > clock_.now ? Reason::kBeginTime : Reason::kNone;
}

// 0: waiting, 1: met, -1: never.
template <int W>
int Engine<W>::verdict(const Dependency& item) const {
  bool started = true, over = true, ok = true, any = false;
  Time by = clock_.now - item.delay;
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
  queue_changes_++;
  changed_.add(slot);
  no_longer_competes(job);
  job.state = State::kRunning;
  job.reason = Reason::kNone;
  job.start = clock_.now;
  job.scheduler = scheduler;
  job.started = ++starts_;
  put_ranges(job, nodes);
  take(nodes, request(job), 1);
  count_use(job, nodes, 1);
  run_begins(slot, nodes);
  if (job.array >= 0) usage_.count_task(job.array, 1);
  if (Time runtime = spec(job.job).runtime; runtime != kNone && !future_forgotten_) end_at(slot, clock_.now + runtime);
  watch_limit(slot);
  if (delayed_) {
    for (int32_t other : waiting_) {
      if (lives_[other].dependencies < 0) continue;
      for (const Dependency& item : dependency_log_[lives_[other].dependencies]->items)
        if (item.delay) push(clock_.now + item.delay, Happening::kBegin, lives_[other].job);
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

template <int W>
void Engine<W>::watch_limit(int32_t slot) {
  if (Time killed = killed_at(lives_[slot]); killed != kNever)
    lives_[slot].limit_event = push(std::max(killed, clock_.now), Happening::kLimit, slot);
}

// The first check from its limit's end and OverTimeLimit on, or after its reservation's (ResvOverRun=0).
template <int W>
Time Engine<W>::killed_at(const Live& job) const {
  Time last = job.limit == kNone ? kNever : job.start + job.limit + job.suspended + over_time_limit(job);
  if (int reservation = shape(job).reservation; reservation >= 0)
    last = std::min(last, config->reservations[reservation].end + 1);
  return last == kNever ? kNever : clock_.start + round_up(last - clock_.start, params().limit_check);
}

// When select/cons_tres expects a job to end that is over its limit (`_guess_job_end`).
template <int W>
Time Engine<W>::overdue_end(const Live& job) const {
  Time limit = job.limit == kNone ? kYear : job.limit, over = over_time_limit(job);
  return over == kYear ? clock_.now + limit : job.start + limit + job.suspended + params().kill_wait + over;
}

template <int W>
void Engine<W>::end_by_itself(int32_t slot) {
  State state = own_end(lives_[slot]);
  vacate(slot);
  finish(slot, state);
  clock_.ask_main(params());
}

// The state of a job that ends by itself now.
template <int W>
State Engine<W>::own_end(const Live& job) const {
  bool over_limit = job.limit != kNone && clock_.now > job.start + job.limit + job.suspended + over_time_limit(job);
  return over_limit ? State::kTimeout : spec(job.job).failing ? State::kFailed : State::kCompleted;
}

template <int W>
void Engine<W>::kill(int32_t slot, State state) {
  vacate(slot);
  finish(slot, state);
  if (params().defer) clock_.ask_main(params());
  else clock_.main_due = clock_.now;
}

template <int W>
void Engine<W>::requeue_slot(int32_t slot, State state) {
  vacate(slot);
  Live& job = lives_[slot];
  Record run = job;
  run.state = state;
  run.end = clock_.now;
  cut_short_.push(run);
  job.state = State::kPending;
  job.submit = clock_.now;
  job.begin = clock_.now + params().requeue_delay;
  job.eligible = job.accrues = job.start = kNone;
  job.ranges = 0;
  job.range_count = 0;
  job.scheduler = 0;
  job.suspended = 0;
  job.restarts++;
  look_in(job, 0);
  forget_test(slot);
  set_size_parts(job);
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
    no_longer_suspended(slot);
    nodes = nodes_of(job);
  } else {
    nodes = run_ends(slot);
    take(nodes, request(job), -1);
  }
  count_use(job, nodes, -1);
  if (job.array >= 0) usage_.count_task(job.array, -1);
  job.end_event = job.limit_event = 0;
  job.runtime_end = kNone;
}

template <int W>
void Engine<W>::finish(int32_t slot, State state, Reason reason) {
  Live& job = lives_[slot];
  job.state = state;
  job.end = clock_.now;
  job.reason = Reason::kNone;
  if (config->any_submit_limit) {
    int choice = job.choice;
    look_in(job, 0);  // where it was submitted
    for_each_use(job, [](QosUse& use) { use.submitted--; });
    look_in(job, choice);
  }
  tell(false, job);
  job.reason = reason;
  where_.at(job.job) = -1 - static_cast<int32_t>(finished_.push(job));
  if (clock_.purge_due == kNever) clock_.purge_due = clock_.purge_of(params(), clock_.now);
  touched(job);
  job.state = state;
  spare_.push_back(slot);
  changed();
}

}  // namespace slurm_sim
