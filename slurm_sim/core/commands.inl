// What users and operators do, and what there is to see. A command changes a job or a node, calls `disturb` if passes depend
// on it, and asks `clock_` for a pass.
#pragma once
#include "engine.hpp"

namespace slurm_sim {

// Raises InvalidJob unless a job may be submitted then, with this id.
template <int W>
void Engine<W>::check_new(Time submit, int64_t job_id) const {
  if (submit < clock_.now)
    throw Refusal(Refusal::kInvalidJob, "submit_s is " + std::to_string(submit) + ", in the past (now: " +
                                            std::to_string(clock_.now) + "); leave it out to submit now");
  if (job_id < 1 || find(job_id) >= 0)
    throw Refusal(Refusal::kInvalidJob,
                  "job_id " + std::to_string(job_id) + " is taken or not positive; give another one, or none");
}

template <int W>
int64_t Engine<W>::submit(Submission& job) {
  Spec& spec = job.spec;
  if (spec.submit == kNone) spec.submit = clock_.now;
  if (spec.job_id == kNone) spec.job_id = next_id_;
  check_new(spec.submit, spec.job_id);
  if (job.extras.dependencies)
    for (const Dependency& item : job.extras.dependencies->items)
      if (item.job_id == spec.job_id)
        throw Refusal(Refusal::kInvalidJob, "job " + std::to_string(spec.job_id) + " would wait for itself (" +
                                                job.dependency + "); remove this dependency");
  // Whatever is new goes into a catalogue of our own.
  int32_t index = job_count();
  auto known = [&](Shape shape, const Request& request) { return catalogue->find_shape(shape, request); };
  spec.shape = known(job.shape, job.request);
  spec.person = catalogue->find_person(job.account, job.user);
  bool all_known = spec.shape >= 0 && spec.person >= 0;
  for (const auto& [shape, request] : job.others) all_known = all_known && known(shape, request) >= 0;
  if (!all_known || job.extras.array != kNone) {
    auto own = std::make_shared<Catalogue>(*catalogue);
    spec.shape = own->shape(job.shape, job.request);
    for (const auto& [shape, request] : job.others) own->shape(shape, request);
    if (spec.person < 0) {
      spec.person = own->person(job.account, job.user);
      usage_.fairshare.stale = true;
      dependency_news_ = dependency_news_ || usage_.fairshare.on;  // who waits has another share, too: all are reviewed
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
  if (!job.others.empty()) job.extras.choices = {spec.shape};
  for (const auto& [shape, request] : job.others) job.extras.choices.push_back(known(shape, request));
  next_id_ = std::max(next_id_, spec.job_id + 1);
  std::pair<int64_t, int32_t> id{spec.job_id, index};
  if (more_ids_.size() == 0 || more_ids_[more_ids_.size() - 1].first < spec.job_id) {
    more_ids_.push(id);
  } else {
    odd_ids_.insert(std::upper_bound(odd_ids_.begin(), odd_ids_.end(), id), id);
  }
  spec.extras = index;
  more_specs_.push({std::make_shared<Spec>(spec), std::make_shared<Extras>(job.extras)});
  if (spec.submit > clock_.now) {
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
  int32_t slot = slot_of(live_in(job_id, State::kRunning).job);
  if (!spec(lives_[slot].job).requeue)
    throw Refusal(Refusal::kSimulation,
                  "job " + std::to_string(job_id) + " was submitted with requeue=False; leave it, or cancel it");
  requeue_slot(slot, State::kRequeued);
}

template <int W>
void Engine<W>::drop_dependency(int64_t job_id) {
  int32_t slot = slot_of(index_of(job_id));
  if (slot < 0 || lives_[slot].state != State::kPending || lives_[slot].dependencies < 0) return;
  lives_[slot].dependencies = -1;
  review(slot);
  changed();
  clock_.ask_main(params());
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
  set_reason(job, Reason::kHeld);
  if (job.begin != kNone && job.begin <= clock_.now) job.begin = kNone;
  changed();
}

template <int W>
void Engine<W>::release(int64_t job_id) {
  Live& job = live_in(job_id, State::kPending);
  if (!job.held) return;
  job.held = false;
  give_priority(job);
  waiting_unheld_++;
  job.reason = Reason::kNone;
  dependency_news_ = true;
  changed();
  clock_.ask_main(params());
}

template <int W>
void Engine<W>::set_runtime_end(int64_t job_id, Time end) {
  Live& job = live_in(job_id, State::kRunning);
  if (end < clock_.now)
    throw Refusal(Refusal::kSimulation, "job " + std::to_string(job_id) + " can't end at " + std::to_string(end) +
                                            ": it is " + std::to_string(clock_.now) + " already");
  end_at(slot_of(job.job), end);
}

template <int W>
void Engine<W>::forget_future() {
  future_forgotten_ = true;
  if (several_) {  // they have the priority of their first partition in all from now on
    ordered_for_ = kNone;
    disturb();
  }
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
  job.suspended_since = clock_.now;
  int32_t slot = slot_of(job.job);
  Set nodes = run_ends(slot);
  suspended_.push_back(slot);
  job.state = State::kSuspended;
  take(nodes, request(job), -1);
  touched(job);
  changed();
  clock_.ask_main(params());
}

// Without suspended jobs select/linear may have no preferences, and then no attempt forgets the last one's.
template <int W>
void Engine<W>::no_longer_suspended(int32_t slot) {
  suspended_.erase(std::find(suspended_.begin(), suspended_.end(), slot));
  if (params().linear) traces_.heavier = Set::none();
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
  Time for_s = clock_.now - job.suspended_since;
  job.state = State::kRunning;
  job.suspended += for_s;
  no_longer_suspended(slot);
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
    queue_changes_++;
    changed_.add(slot);
    forget_test(slot);
    set_size_parts(job);
    untested_ = untested_ || awaits_test(job);
    disturb();
    skips_.limits_noted = false;
    if (job.place < 0)
      for_each_choice(job, [&](int32_t choice) { demand_[choice].least_nodes = std::min(demand_[choice].least_nodes, wanted); });
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
    count_use(job, old, -1);
    job.nodes = wanted;
    set_size_parts(job);
    put_ranges(job, kept);
    take(kept, request(job), 1);
    count_use(job, kept, 1);
    run_begins(slot, kept);
  }
  changed();
  clock_.ask_main(params());
}

template <int W>
NodeSet<W> Engine<W>::more_nodes(const Live& job, int64_t count) {
  const Shape& its = shape(job);
  Time until = job.limit == kNone ? kNone : job.start + job.limit + job.suspended;
  if (until == kNone || until == 0) until = clock_.now + kYear;
  Set free = (hosts(shape(job).request) & up_ & set_of(its.suitable)).without(taken(its.reservation, clock_.now, until));
  free = free.without(nodes_of(job));
  if (free.count() < count)
    throw Refusal(Refusal::kSimulation, "job " + std::to_string(job.job_id) + " can't get " + std::to_string(count) +
                                            " more nodes: " + std::to_string(free.count()) + " are free for it");
  attempt(free, preferred(job));
  return pick(free, static_cast<int>(count), request(job), free_now(), true);
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
        outages_[i].end = clock_.now;
        break;
      }
    }
  } else if (up_.has(node)) {
    up_.remove(node);
    outages_.push_back({node, clock_.now, kNone});
  }
  power_ = power();
  if (action == NodeChange::kDown) {
    std::vector<int32_t> there;
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
  if (action == NodeChange::kResume) clock_.ask_main(params());
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
    for (const Queued& job : queue_)
      if (is_first_choice(job)) found.push_back(lives_[job.slot]);
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

}  // namespace slurm_sim
