// What running jobs take of nodes, and what limits leave to others: it writes the nodes' state and `usage_`.
#pragma once
#include "engine.hpp"

namespace slurm_sim {

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
  changed_.add(slot);
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
  changed_.add(slot);
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
        free_memory_[i] -= sign * (request.whole ? node.memory : request.memory_of(node));
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
    uint64_t fits = free_cpus_[i] >= asked.cpus && free_memory_[i] >= asked.memory_of(config->nodes[i]) &&
                    free_gpus_[i] >= asked.gpus;
    uint64_t& word = fits_[request].word[i >> 6];
    word = (word & ~(uint64_t{1} << (i & 63))) | fits << (i & 63);
  }
}

// slurmctld sees whether a new job could ever run.
template <int W>
void Engine<W>::tested_at_submission(const Live& job) {
  if (job.held || (config->any_limit && jobs_limit_reached(job) != Reason::kNone)) return;
  const Shape& its = shape(job);
  Set usable = up_ & set_of(its.suitable), open = usable & (request(job).whole ? idle_ : shared_);
  attempt(set_of(its.listed), preferred(job));
  bool starts = open.count() >= job.nodes;
  tested(starts ? open : usable, its.request);
  if (!params().linear || !config->sizes_vary()) return;
  note_test(job, starts ? pick(open, job.nodes, request(job), all_empty(), true) : possible(job));
}

// Nodes that its limits of nodes count already.
template <int W>
NodeSet<W> Engine<W>::preferred(const Live& job) const {
  Set nodes = Set::none();
  if (!has_preferences()) return nodes;
  const LimitSet& set = limit_set(job);
  for (const QosLimit& limit : set.limits)
    if (limit.kind == kNodes) nodes = nodes | occupied(limit, job.person);
  if (set.group[kNodes]) return nodes;
  catalogue->up_from(job.person, [&](int member) {
    if (catalogue->members[member].most[kNodes] == kNone) return false;
    nodes = nodes | occupied(member);
    return true;
  });
  return nodes;
}

// An attempt to start a job on some of these nodes begins.
template <int W>
void Engine<W>::attempt(const Set& nodes, const Set& preferred) {
  for (Set& near : traces_.near) near = near.without(nodes);
  traces_.heavier = params().linear ? Set::none() : traces_.heavier.without(nodes);
  if (!preferred.any()) return;
  for (const NodeKind& kind : config->kinds) {
    Set alike = set_of(kind.nodes) & nodes;
    if ((alike & preferred).any()) traces_.heavier = traces_.heavier | alike.without(preferred);
  }
}

// On these nodes there was room for a job, in a test.
template <int W>
void Engine<W>::tested(const Set& nodes, int request) {
  const Request& asked = catalogue->requests[request];
  if (!asked.gpus) return;
  for (size_t gpus = 1; gpus < traces_.near.size(); gpus++) {
    Set& near = traces_.near[gpus];
    bool same = gpus == static_cast<size_t>(std::min(asked.gpus, kMostGpus));
    near = near.without(nodes);
    if (asked.whole) near = near | (nodes & set_of(config->by_gpus[gpus]));
    else if (same) near = near | nodes;
  }
}

// Of these nodes, those of the least weight.
template <int W>
NodeSet<W> Engine<W>::lightest(const Set& free) const {
  if (config->kinds.size() == 1 && !traces_.heavier.any()) return free;
  Set among = Set::none();
  int64_t least = INT64_MAX;
  for (const NodeKind& kind : config->kinds) {
    Set nodes = free & set_of(kind.nodes);
    Set light = nodes.without(traces_.heavier);
    int64_t weight = kind.weight + !light.any();
    if (!nodes.any() || weight > least) continue;
    among = weight < least ? Set::none() : among;
    least = weight;
    among = among | (light.any() ? light : nodes);
  }
  return among;
}

// Of these nodes, those of so many kinds, lightest first, that there are enough: select/linear.
template <int W>
NodeSet<W> Engine<W>::lightest_kinds(const Set& free, int count) const {
  Set among = Set::none();
  if (!traces_.heavier.any()) {
    for (size_t i = 0; among.count() < count; i++) among = among | (free & set_of(config->kinds[i].nodes));
    return among;
  }
  std::vector<std::pair<int64_t, Set>> weighed, split;
  for (const NodeKind& kind : config->kinds) {
    Set nodes = set_of(kind.nodes), heavier = nodes & traces_.heavier;
    weighed.emplace_back(kind.weight + heavier.any(), heavier.any() ? heavier : nodes);
    if (heavier.any()) split.emplace_back(kind.weight, nodes.without(heavier));
  }
  weighed.insert(weighed.end(), split.rbegin(), split.rend());
  std::stable_sort(weighed.begin(), weighed.end(), [](auto& a, auto& b) { return a.first < b.first; });
  for (const auto& [weight, nodes] : weighed) {
    among = among | (free & nodes);
    if (among.count() >= count) break;
  }
  return among;
}

// Lower Weight first (select/linear forgets weights when it plans); `has`: for select/cons_tres.
template <int W>
NodeSet<W> Engine<W>::pick(const Set& from, int count, const Request& request, const Free& has, bool starts,
                          bool later) const {
  if (params().linear) {
    bool all = !starts || (config->kinds.size() == 1 && !traces_.heavier.any());
    bool alike = config->least.cpus == config->most.cpus;
    if (all && alike) return pick_nodes(from, count);
    Set among = all ? from : lightest_kinds(from, count);
    return alike ? pick_nodes(among, count) : pick_by_cpus(among, count, config->node_cpus);
  }
  Set free = from, picked = Set::none();
  while (count > 0) {
    Set among = lightest(free);
    // Then more GPUs first: a whole node's, or those that tests counted.
    for (size_t gpus = traces_.near.size(); gpus-- > 1;) {
      if (request.gpus ? !request.whole : starts) break;
      Set more = among & (request.gpus ? set_of(config->by_gpus[gpus]) : traces_.near[gpus]);
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
      some = request.gpus            ? pick_sharing(among, count, Same{request.cpus})
             : request.by_cpu.memory ? pick_sharing(among, count, Countable{request.by_cpu, has})
                                     : pick_sharing(among, count, has.cpus);
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

// When the first of the other reservations that are yet to begin takes one of these nodes; kNever: not before this time.
template <int W>
Time Engine<W>::first_reserved(int reservation, const Set& nodes, Time until) const {
  Time first = kNever;
  for (int i = 0; i < static_cast<int>(config->reservations.size()); i++) {
    const Reservation& other = config->reservations[i];
    bool comes = i != reservation && other.start > clock_.now && other.start < until;
    if (comes && (nodes & set_of(other.nodes)).any()) first = std::min(first, other.start);
  }
  return first;
}

// What it uses on these nodes.
template <int W>
Amounts Engine<W>::use_of_nodes(const Live& job, const Set& nodes) const {
  const Request& each = request(job);
  int64_t count = nodes.count();
  if (!each.whole) return {1, count, count * counted_cpus(job), count * each.gpus};
  Amounts all = {1, count, 0, 0};
  for_each_run(nodes, [&](int first, int length) {
    for (int i = first; i < first + length; i++) {
      all[kCpus] += config->nodes[i].cpus;
      all[kGpus] += config->nodes[i].gpus;
    }
  });
  return all;
}

// The same if backfill plans them: slurmctld does not count all GPUs of whole nodes then.
template <int W>
Use<W> Engine<W>::use_planned(const Live& job, const Set& nodes) const {
  Use<W> use{use_of_nodes(job, nodes)};
  use.amounts[kGpus] = job.nodes * spec(job.job).gpus;
  return use;
}

// What it would use if all nodes had as much as this one.
template <int W>
Use<W> Engine<W>::use_by(const Live& job, const Node& each, bool planned) const {
  const Request& its = request(job);
  int64_t cpus = its.whole ? each.cpus : counted_cpus(job), gpus = its.whole ? each.gpus : its.gpus;
  return {{1, job.nodes, job.nodes * cpus, job.nodes * (planned ? spec(job.job).gpus : gpus)}};
}

// Nodes that slurmctld sees for a job that can't start now: as if no other job ran.
template <int W>
NodeSet<W> Engine<W>::possible(const Live& job) const {
  const Shape& its = shape(job);
  Set nodes = up_ & set_of(its.suitable);
  if (nodes.count() < job.nodes) nodes = set_of(its.suitable);
  if (nodes.count() <= job.nodes) return nodes;  // a live cluster's queue may have jobs for which there are too few
  if (config->alike() || !request(job).whole) return first_nodes(nodes, job.nodes);  // one is as good as another
  return pick(nodes, job.nodes, request(job), all_empty(), !params().linear);  // select/linear forgets weights here
}

// What it is billed for each second.
template <int W>
double Engine<W>::billing(const Live& job, const Amounts& amounts) const {
  const double* weights = config->partitions[job.partition].billing;
  int64_t memory = params().memory_is_consumable ? amounts[kNodes] * spec(job.job).memory : 0;
  int64_t held[kTres] = {amounts[kCpus], memory, amounts[kNodes], amounts[kGpus]};
  double sum = 0, most = 0;
  for (int i = 0; i < kTres; i++) {
    double part = static_cast<double>(held[i]) * weights[i];
    sum += part;
    most = std::max(most, part);
  }
  return params().max_tres ? most : sum;
}

template <int W>
void Engine<W>::count_use(const Live& job, const Set& nodes, int sign) {
  disturb();
  skips_.limits_noted = false;
  if (!config->any_limit && !usage_.fairshare.on) return;
  Amounts amounts = use_of_nodes(job, nodes);
  if (config->any_limit) {
    for_each_use(job, [&](QosUse& use) {
      for (int kind = 0; kind < kKinds; kind++) use.used[kind] += sign * amounts[kind];
    });
    usage_.count(*config, *catalogue, job.person, amounts, sign);
  }
  if (!usage_.fairshare.on) return;
  if (sign < 0) usage_.fairshare.stop(*catalogue, job.job, clock_.now);
  else usage_.fairshare.start(*catalogue, {job.job, job.person, clock_.now, billing(job, amounts), config->usage_factor[job.qos]});
}

// The limit that keeps it from starting; kNone: none does.
template <int W>
Reason Engine<W>::limit_reached(const Live& job, const Use<W>& use) const {
  if (!config->any_limit) return Reason::kNone;
  if (Reason reason = jobs_limit_reached(job); reason != Reason::kNone) return reason;
  return resources_limit_reached(job, use);
}

// The same, of those that count jobs, and of the others.
template <int W>
Reason Engine<W>::jobs_limit_reached(const Live& job) const {
  Use<W> one{{1, 0, 0, 0}};
  if (Reason reason = qos_limit_reached(job, true, one); reason != Reason::kNone) return reason;
  if (Reason reason = group_limit_reached(job, true, one); reason != Reason::kNone) return reason;
  return max_jobs_reached(job) ? Reason::kAssocMaxJobs : Reason::kNone;
}
template <int W>
Reason Engine<W>::resources_limit_reached(const Live& job, const Use<W>& use) const {
  if (!config->any_limit) return Reason::kNone;
  if (Reason reason = qos_limit_reached(job, false, use); reason != Reason::kNone) return reason;
  return group_limit_reached(job, false, use);
}

// Nodes of all jobs for which `of` is true. One that several of them share is there once.
template <int W>
template <typename Of>
NodeSet<W> Engine<W>::occupied(Of of) const {
  Set nodes = Set::none();
  for (const Run<W>& run : running_)
    if (of(lives_[run.slot])) nodes = nodes | run.nodes;
  for (int32_t slot : suspended_)
    if (of(lives_[slot])) nodes = nodes | nodes_of(lives_[slot]);
  return nodes;
}

// Nodes that this limit counts with this person's; and those of a person, or of all in an account.
template <int W>
NodeSet<W> Engine<W>::occupied(const QosLimit& limit, int person) const {
  size_t counter = Usage::counter_of(*config, *catalogue, limit.qos, limit.scope, person);
  return occupied([&](const Live& other) {
    const std::vector<int>& counted = limit_set(other).counted;
    bool in_qos = std::find(counted.begin(), counted.end(), limit.qos) != counted.end();
    return in_qos && Usage::counter_of(*config, *catalogue, limit.qos, limit.scope, other.person) == counter;
  });
}
template <int W>
NodeSet<W> Engine<W>::occupied(int member) const {
  return occupied([&](const Live& other) {
    bool in = false;
    catalogue->up_from(other.person, [&](int above) { return in = in || above == member; });
    return in;
  });
}

template <int W>
Reason Engine<W>::qos_limit_reached(const Live& job, bool of_jobs, const Use<W>& use) const {
  for (const QosLimit& limit : limit_set(job).limits) {
    if ((limit.kind == kJobs) != of_jobs) continue;
    size_t at = Usage::counter_of(*config, *catalogue, limit.qos, limit.scope, job.person);
    int64_t used = usage_.used(limit.scope, at, limit.kind);
    if (exceeds(used, limit.most, use, limit.kind, [&] { return occupied(limit, job.person); })) return limit.reason;
  }
  return Reason::kNone;
}

template <int W>
bool Engine<W>::max_jobs_reached(const Live& job) const {
  if (limit_set(job).own_max_jobs) return false;
  int64_t most = catalogue->persons[job.person].max_jobs;
  return most != kNone && usage_.jobs_of(job.person) + 1 > most;
}

// Of the person, the account, and those above it. What a QOS limits is left to it.
template <int W>
Reason Engine<W>::group_limit_reached(const Live& job, bool of_jobs, const Use<W>& use) const {
  static constexpr std::pair<Kind, Reason> kGroup[] = {{kJobs, Reason::kAssocGrpJobs},
                                                       {kCpus, Reason::kAssocGrpCpu},
                                                       {kNodes, Reason::kAssocGrpNode},
                                                       {kGpus, Reason::kAssocGrpGres}};
  Reason found = Reason::kNone;
  if (!config->any_group_limit) return found;
  catalogue->up_from(job.person, [&](int member) {
    for (auto [kind, reason] : kGroup) {
      int64_t most = catalogue->members[member].most[kind];
      if ((kind == kJobs) != of_jobs || most == kNone || limit_set(job).group[kind]) continue;
      int64_t used = usage_.used_below(member, kind);
      if (exceeds(used, most, use, kind, [&] { return occupied(member); })) return found = reason, true;
    }
    return false;
  });
  return found;
}

template <int W>
bool Engine<W>::throttled(const Live& job) const {
  if (job.array < 0) return false;
  const Extras* more = extras(spec(job.job));
  if (more->throttle == kNone) return false;
  return usage_.tasks_of(job.array) >= more->throttle;
}

}  // namespace slurm_sim
