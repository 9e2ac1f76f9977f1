// The queue's order: priorities, and places in `queue_`. Of `skips_` it says what another order ends.
#pragma once
#include "scratch.inl"

namespace slurm_sim {

// With priority/basic a job that is submitted or released comes last. When it is requeued it keeps its place.
template <int W>
void Engine<W>::give_priority(Live& job) {
  if (params().multifactor || job.held || job.own_priority) return;
  lowest_ = std::max<int64_t>(1, lowest_ - 1);
  int64_t nice = job.nice ? extras(spec(job.job))->nice : 0;
  job.priority = std::clamp<int64_t>(lowest_ - nice, 1, kMostPriority);
}

// priority/multifactor, truncated to 32 bits, at least 1; 0 is a held job's.
template <int W>
int64_t Engine<W>::priority_of(const Live& job, Time calculated, double share_part) const {
  if (job.held) return 0;
  if (future_forgotten_ && job.priority > 0) return job.priority;
  const Params& p = params();
  if (job.own_priority) return extras(spec(job.job))->priority;
  if (!p.multifactor) return job.priority;
  Time since = p.accrue_always ? job.submit : job.accrues;
  double age = 0.0;
  if (since != kNone)
    age = std::min(1.0, static_cast<double>(std::max<Time>(0, calculated - since)) / static_cast<double>(p.max_age));
  double age_part = static_cast<double>(p.weight_age) * age;
  bool recalculated = !p.linear || config->sizes_vary() || (job.accrues != kNone && calculated > job.accrues);
  double size_part = recalculated ? job.size_part : job.asked_size_part;
  double sum = age_part + share_part + size_part + config->partitions[job.partition].priority_part + config->qos_part[job.qos];
  if (p.weighs_tres) sum += tres_part(job);
  if (job.nice) sum -= static_cast<double>(extras(spec(job.job))->nice);
  return std::max<int64_t>(1, static_cast<int64_t>(std::min(sum, static_cast<double>(kMostPriority))));
}

// PriorityWeightTRES: of what the job asks for, also where it gets whole nodes.
template <int W>
double Engine<W>::tres_part(const Live& job) const {
  const Params& p = params();
  const Spec& asked = spec(job.job);
  const int64_t each[kTres] = {asked.cpus, asked.memory, 1, asked.gpus};
  double part = 0;
  for (int i = 0; i < kTres; i++) {
    auto value = static_cast<double>(job.nodes * each[i]);
    int64_t there = config->partitions[job.partition].tres[i];
    if (p.no_normal_tres) part += value * p.weight_tres[i];
    else if (there) part += value / static_cast<double>(there) * p.weight_tres[i];
  }
  return part;
}

// Of its priority. The mean of its parts of the cluster's nodes and CPUs, or, relative to time, its CPUs' part by minutes.
template <int W>
double Engine<W>::size_part(const Live& job, int64_t cpus) const {
  const Params& p = params();
  auto nodes = static_cast<int64_t>(config->nodes.size());
  if (p.small_relative_to_time) {
    double minutes = static_cast<double>(job.limit == kNone ? kMostPriority : (job.limit + 59) / 60);
    double at_least = static_cast<double>(job.nodes * config->cpus) / static_cast<double>(nodes);
    double size = std::max(at_least, static_cast<double>(cpus)) / minutes / static_cast<double>(config->cpus);
    return static_cast<double>(p.weight_size) * std::clamp(p.favor_small ? 1.0 - size : size, 0.0, 1.0);
  }
  double size = static_cast<double>(p.favor_small ? nodes - job.nodes : job.nodes) / static_cast<double>(nodes);
  size = (size + static_cast<double>(p.favor_small ? config->cpus - cpus : cpus) / static_cast<double>(config->cpus)) / 2;
  return static_cast<double>(p.weight_size) * size;
}

// A test of a job has picked these nodes; none, or too few: it failed.
template <int W>
void Engine<W>::note_test(const Live& job, const Set& nodes) {
  if (sizes_by_tests() && nodes.count() == job.nodes) note_tested(job, use_of_nodes(job, nodes)[kCpus]);
}
template <int W>
void Engine<W>::note_tested(const Live& job, int64_t cpus) {
  size_t slot = &job - lives_.data();
  if (slot >= tested_cpus_.size()) tested_cpus_.resize(lives_.size());
  tested_cpus_[slot] = cpus;
}

// Priorities are recalculated: sizes are as tests have told until now.
template <int W>
void Engine<W>::count_tests() {
  auto count = [this](int32_t slot) {
    if (int64_t cpus = tested_cpus(slot)) lives_[slot].size_part = size_part(lives_[slot], cpus);
  };
  for (int32_t slot : waiting_) count(slot);
  for (int32_t slot : fresh_) count(slot);
  for (const Queued& job : queue_) count(job.slot);
}

// Priorities are refreshed each PriorityCalcPeriod, as a pass so late within this second sees it; between, only what is new
// is put in its place.
template <int W>
void Engine<W>::order_queue(Time within_us) {
  Time of = clock_.see_calculated(clock_.now - (within_us < kTickPhaseUs));
  bool all = ordered_for_ == kNone || (priorities_move() && of != ordered_for_);
  if (usage_.fairshare.on && order_changed_ && (usage_.fairshare.stale || usage_.fairshare.version != ordered_shares_)) all = true;
  if (of != tests_counted_for_ && sizes_by_tests()) count_tests();
  ordered_for_ = tests_counted_for_ = of;
  order_changed_ = false;
  if (all) recalculate(of);
  auto comes_first = [this](const Queued& a, const Queued& b) { return rank(a) < rank(b); };
  for (int32_t slot : fresh_) {
    const Live& live = lives_[slot];
    Time limit = least_limit(live);
    for_each_choice(live, [&](int32_t choice) {
      Queued job{limit, slot, live.nodes, choice};
      if (queue_.empty() || comes_first(queue_.back(), job)) {
        queue_.push_back(job);
      } else {
        auto at = queue_.insert(std::upper_bound(queue_.begin(), queue_.end(), job, comes_first), job);
        skips_.reordered(at - queue_.begin(), thorough);
      }
    });
    if (skips_.quiet_until != kNone) skips_.unseen.push_back(slot);
  }
  fresh_.clear();
  settle();
}

template <int W>
void Engine<W>::recalculate(Time of) {
  Scratch& room = scratch();
  for (int32_t slot : waiting_) set_priority(lives_[slot], priority_of(lives_[slot], of));
  for (int32_t slot : fresh_) set_priority(lives_[slot], priority_of(lives_[slot], of));
  if (params().min_prio_reserve) disturb();
  constexpr double kUnknown = -1.0;
  room.share_parts.assign(catalogue->persons.size(), kUnknown);
  room.ranks.resize(queue_.size());
  bool sorted = true;
  for (size_t i = 0; i < queue_.size(); i++) {
    Live& job = lives_[queue_[i].slot];
    double& share = room.share_parts[job.person];
    if (share == kUnknown) share = share_part(job.person, of);
    if (job.several) takes_turn(queue_[i]);
    set_priority(job, priority_of(job, of, share));
    queue_[i].nodes = job.nodes;
    room.ranks[i] = rank(job);
    sorted = sorted && !(i > 0 && room.ranks[i] < room.ranks[i - 1]);
  }
  ordered_shares_ = usage_.fairshare.version;
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
  skips_.reordered(first, thorough);
}

// ---- when the schedulers run

template <int W>
void Engine<W>::purge_until(Time now) {
  while (clock_.purge_due <= now) clock_.purge_due = ++clock_.purged < finished_.size() ? clock_.purge_of(params(), finished_[clock_.purged].end) : kNever;
}

// How long a backfill pass takes now; without bf_cycle_us as typical_cycle_us in config.py.
template <int W>
Time Engine<W>::cycle_us() {
  if (params().bf_cycle_us != kNone) return params().bf_cycle_us;
  auto queued = static_cast<Time>(queue_.size()), running = static_cast<Time>(running_.size());
  Time tested = most_tested();
  return tested * (9000 + 400 * running + 5 * tested * running) / 1000 + queued - tested;
}

// How many of the queued jobs a backfill pass tests at most, as far as counts tell.
template <int W>
int64_t Engine<W>::most_tested() {
  auto most = std::min<int64_t>(queue_.size(), params().max_job_test);
  if (!params().counts_jobs()) return most;
  if (counted_of_ != queue_changes_) {
    counted_of_ = queue_changes_;
    counted_ = kNever;
    auto& counts = scratch().in_queue;
    counts.clear();
    counts.make_room(*this);
    int64_t kinds[4] = {};
    bool limited[4] = {};
    for (const Queued& job : queue_) {
      takes_turn(job);
      auto of = counts.of(*this, lives_[job.slot]);
      for (size_t i = 0; i < of.size(); i++) {
        auto [count, limit] = of[i];
        limited[i] = limit != kNone;
        kinds[i] += limited[i] && (*count)++ < limit;
      }
    }
    for (size_t i = 0; i < 4; i++)
      if (limited[i]) counted_ = std::min(counted_, kinds[i]);
  }
  return std::min(most, counted_);
}

}  // namespace slurm_sim
