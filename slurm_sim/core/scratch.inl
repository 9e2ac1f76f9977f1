// What a pass works in, and where it looks for places for jobs: passes.py's and backfill.py's outlook and plan, with the
// tables that tell quickly which jobs have no place. Of the engine it changes the traces of tests alone.
#pragma once
#include <array>

#include "engine.hpp"

namespace slurm_sim {

// Room for a pass to work in; no part of the state. One for each thread, so that passes allocate nothing.
template <int W>
struct Engine<W>::Scratch {
  Plan<W> plan;
  int64_t tested = 0;  // jobs for which there were enough unreserved nodes at some time
  bool test_found = false;  // a test of the last job found room,
  Set last_test;            // and the last such one picked these nodes, where sizes_by_nodes
  std::vector<Time> test_ends;  // from when on one that has no place may no longer count as tested
  std::vector<Held<W>> held;               // the running jobs, by end
  bool held_known = false;
  // Nodes on which a request fits now and after each job's end, as far as it was asked; and what is free then.
  struct Chain {
    std::vector<Set> sets;
    std::vector<int64_t> cpus, memory, gpus;
    std::vector<int32_t> jobs_on;
  };
  std::vector<Chain> chains;               // by request
  std::vector<int64_t> cpus, memory;       // for `after`

  // Jobs of a user, of a partition, of both, of a user in an account. Of each kind a pass only looks at so many.
  struct Counts {
    std::vector<int64_t> of_user, of_partition, of_user_part, of_person;
    void clear() {
      for (auto* counts : {&of_user, &of_partition, &of_user_part, &of_person}) counts->clear();
    }
    void make_room(const Engine& sim) {
      size_t partitions = sim.config->partitions.size(), users = sim.catalogue->users.size();
      of_user.resize(users);
      of_partition.resize(partitions);
      of_user_part.resize(users * partitions);
      of_person.resize(sim.catalogue->persons.size());
    }
    // The counts that a job belongs to, and how many of each a pass looks at.
    std::array<std::pair<int64_t*, int64_t>, 4> of(const Engine& sim, const Live& job) {
      const Params& p = sim.params();
      int user = sim.catalogue->persons[job.person].user;
      return {{{&of_partition[job.partition], p.max_job_part},
               {&of_user_part[user * sim.config->partitions.size() + job.partition], p.max_job_user_part},
               {&of_person[job.person], p.max_job_assoc},
               {&of_user[user], p.max_job_assoc == kNone ? p.max_job_user : kNone}}};
    }
  };
  Counts looked_at, in_queue;
  std::vector<int64_t> reserved_in;        // by partition: jobs that a pass reserved nodes for
  std::vector<std::pair<int32_t, int64_t>> reserved;
  std::vector<int32_t> rejected;
  std::vector<std::pair<int32_t, Time>> expected;  // of jobs in several partitions, so far
  int64_t started = 0;

  uint64_t plan_id = 0;                    // whose plan it is: Engine::skips_.plan
  size_t planned = 0, next = 0;            // places in the queue: the first not planned, the first that might start
  bool over = false;                       // the pass would not go on, whoever came

  std::vector<uint8_t> stopped, stopped_reservation;
  std::vector<int64_t> main_of_partition;  // jobs that a main pass has looked at
  // For a recalculation of priorities: ranks by place in the queue, the places in their order, and parts of persons.
  std::vector<Rank> ranks;
  std::vector<int32_t> order, kept, moved;
  std::vector<Queued> queue;
  std::vector<double> share_parts;

  // What limits on numbers of jobs say, by person, partition and QOS: it is the same for all of these until one starts.
  struct Verdict {
    uint64_t of = 0;
    Reason reason = Reason::kNone;
  };
  std::vector<Verdict> verdicts;
  uint64_t verdicts_of = 0;                // others are of an earlier pass, or of before a start
  Reason limit_reached(const Engine& sim, const Live& job, const Use<W>& use) {
    if (!sim.config->any_limit) return Reason::kNone;
    return sim.limit_set(job).alike ? jobs_limit_reached(sim, job) : sim.limit_reached(job, use);
  }
  Reason jobs_limit_reached(const Engine& sim, const Live& job) {
    if (!sim.config->any_limit) return Reason::kNone;
    const auto& sets = sim.config->limit_sets;
    size_t at = job.person * sets.size() + (&sim.limit_set(job) - sets.data());
    if (at >= verdicts.size()) verdicts.resize(sim.catalogue->persons.size() * sets.size());
    if (verdicts[at].of != verdicts_of) verdicts[at] = {verdicts_of, sim.jobs_limit_reached(job)};
    return verdicts[at].reason;
  }
  // Which jobs of a shape have no place in the plan. By nodes asked for: limits from which on there is none, and limits from
  // which on there are too few unreserved nodes whenever the job starts from `hopeless_start` on. Reservations and starts
  // only make it worse.
  struct Tables {
    static constexpr int kMisses = 6;  // so many make new tables worth their cost
    std::vector<Time> nowhere_from, hopeless_from;
    Time hopeless_start = kNever;
    uint64_t version = 0, checked = 0;  // of the plan: when they were made, and when `hopeless_start` was seen to hold
    int misses = 0;                     // jobs that found no place since they were made
  };
  // What a pass knows about the jobs of a shape.
  struct About {
    bool known = false, free_known = false;
    Set usable, able, free;  // as of a Wish; free: where such a job fits now
    int free_count = 0;
    View<W>* view = nullptr;
    Tables tables;
    // By nodes: limits up to which a job could start now. In later versions of the plan there are at most these.
    std::vector<Time> startable_until;
    uint64_t startable_version = 0;
    int startable_asked = 0;            // how often it was asked of this version of the plan
    bool rules_out(const Queued& job) const {
      return job.nodes < static_cast<int>(startable_until.size()) && job.limit >= startable_until[job.nodes];
    }
  };
  std::vector<About> abouts;

  About& about(const Engine& sim, int shape) {
    About& it = abouts[shape];
    return it.known && it.free_known ? it : look_about(sim, shape);
  }
  [[gnu::noinline]] About& look_about(const Engine& sim, int shape) {
    About& it = abouts[shape];
    const Shape& its = sim.catalogue->shapes[shape];
    if (!it.known) {
      it.known = true;
      it.usable = sim.up_ & sim.set_of(its.listed);
      it.able = sim.up_ & sim.set_of(its.suitable);
      it.view = nullptr;
      it.startable_until.clear();
    }
    if (!it.free_known) {
      it.free_known = true;
      it.free = it.able & sim.hosts(its.request);
      it.free_count = it.free.count();
      it.startable_version = 0;
    }
    return it;
  }
  // Whether enough nodes are free now and unreserved for as long.
  bool unreserved_and_free(const Engine& sim, About& it, const Queued& job) {
    int last;
    if (it.rules_out(job)) return false;
    if (it.startable_version != plan.version) {
      it.startable_version = plan.version;
      it.startable_asked = 0;
    }
    if (job.nodes > kTable || ++it.startable_asked < 8)
      return (it.free & plan.open_until(sim.clock_.now + job.limit, last)).count() >= job.nodes;
    if (it.startable_asked == 8) {
      int enough = std::min(it.free_count, kTable);
      it.startable_until.assign(enough + 1, 0);
      for (int i = plan.step_of_now(); i < plan.size() && enough > 0; i++) {
        Set left = it.free & plan.open_until(std::max(plan.begins[i], sim.clock_.now), last);
        enough = note(it.startable_until, enough, left.count(), plan.begins[i] - sim.clock_.now);
      }
      note(it.startable_until, enough, 0, kNever);
      spread(it.startable_until);
    }
    return job.limit < it.startable_until[job.nodes];
  }

  bool is_rejected(int32_t array) const {
    return array >= 0 && std::find(rejected.begin(), rejected.end(), array) != rejected.end();
  }
  void reject(int32_t array) {
    if (array >= 0 && !is_rejected(array)) rejected.push_back(array);
  }
  // Notes when a job in several partitions is expected to start; whether that is earlier than in those before.
  bool is_expected(int32_t job) const {
    return std::any_of(expected.begin(), expected.end(), [job](const auto& known) { return known.first == job; });
  }
  bool expects(int32_t job, Time start) {
    for (auto& [known, earliest] : expected)
      if (known == job) return start < earliest && (earliest = start, true);
    expected.emplace_back(job, start);
    return true;
  }
  int64_t& reserved_of(int32_t array) {
    for (auto& [known, count] : reserved)
      if (known == array) return count;
    return reserved.emplace_back(array, 0).second;
  }

  void outlook_begins(const Engine& sim) {
    held.clear();
    held_known = false;
    abouts.resize(sim.catalogue->shapes.size());
    for (About& it : abouts) {
      it.known = it.free_known = false;
      it.view = nullptr;
    }
    chains.resize(sim.catalogue->requests.size());
    for (Chain& chain : chains) chain.sets.clear();
  }
  // At least up to this job's end, as far as there are so many.
  const std::vector<Set>& chain(const Engine& sim, int request, size_t ends) {
    const std::vector<Set>& sets = chains[request].sets;
    return held_known && sets.size() > std::min(ends, held.size()) ? sets : longer_chain(sim, request, ends);
  }
  SLURM_SIM_FLATTEN SLURM_SIM_APART const std::vector<Set>& longer_chain(const Engine& sim, int request, size_t ends) {
    Chain& its = chains[request];
    if (!held_known) {
      held_known = true;
      for (const Run<W>& run : sim.running_) held.push_back({run.end, run.nodes, run.request, run.slot});
    }
    bool linear = sim.params().linear;
    if (its.sets.empty()) {
      its.sets.push_back(sim.hosts(request));
      if (!linear) {
        its.cpus = sim.free_cpus_;
        its.memory = sim.free_memory_;
        its.gpus = sim.free_gpus_;
        its.jobs_on = sim.jobs_on_;
      }
    }
    for (size_t i = its.sets.size() - 1; i < std::min(ends, held.size()); i++) {
      its.sets.push_back(linear ? its.sets[i] | held[i].nodes : its.sets[i]);
      if (!linear) give(sim, held[i], sim.catalogue->requests[request], its);
    }
    return its.sets;
  }
  void give(const Engine& sim, const Held<W>& run, const Request& asked, Chain& to) {
    const Request& has = sim.catalogue->requests[run.request];
    for_each_run(run.nodes, [&](int first, int length) {
      for (int i = first; i < first + length; i++) {
        const Node& node = sim.config->nodes[i];
        to.cpus[i] += has.whole ? node.cpus : has.cpus;
        to.memory[i] += has.whole ? node.memory : has.memory_of(node);
        to.gpus[i] += has.whole ? node.gpus : has.gpus;
        to.jobs_on[i]--;
        bool room = asked.whole ? to.jobs_on[i] == 0
                                : to.cpus[i] >= asked.cpus && to.memory[i] >= asked.memory_of(node) && to.gpus[i] >= asked.gpus;
        if (room) to.sets.back().add(i);
      }
    });
  }
  void outlook_started(const Held<W>& run) {
    auto later = [](Time end, const Held<W>& other) { return end < other.end; };
    held.insert(std::upper_bound(held.begin(), held.end(), run.end, later), run);
    for (Chain& chain : chains) chain.sets.clear();
    for (About& it : abouts) it.free_known = false;
    plan.version++;
  }
  // When enough of these nodes are first free together, which these are, and after how many jobs' ends.
  Placement<W> first(const Engine& sim, const Wish<W>& wish, const Set& nodes, int& ended) {
    const std::vector<Set>& sets = chain(sim, wish.request, 0);
    Set able = nodes & wish.able;
    auto enough = [&](int ends) { return (sets[ends] & able).count() >= wish.needed; };
    int low = 0, known = static_cast<int>(sets.size()), all = static_cast<int>(held.size());
    while (!enough(known - 1)) {
      if (known > all) return {};
      low = known;
      chain(sim, wish.request, std::min(all, 2 * known + 2));
      known = static_cast<int>(sets.size());
    }
    // Halves without branches, which could not be predicted.
    for (int count = known - low; count > 1;) {
      int half = count / 2;
      low = enough(low + half - 1) ? low : low + half;
      count -= half;
    }
    ended = low;
    if (low == 0) return {sim.clock_.now, sets[0] & able};
    if (!sim.params().linear) {
      Time start = end_of_group(sim, nodes, ended);
      return {start, chain(sim, wish.request, ended)[ended] & able};
    }
    Time end = held[low - 1].end;
    plan.note_change(std::max(end, sim.clock_.now + 1));
    return {std::max(end, sim.clock_.now + 1), sets[low] & able};
  }
  // With select/cons_tres: when the last job of the group of the job with which it is enough ends; `ended` counts on to
  // that. Jobs elsewhere belong to no group. The barrier is the first job's end, rounded up.
  Time end_of_group(const Engine& sim, const Set& nodes, int& ended) {
    Time barrier = kNone, window = kGroup, last = sim.clock_.now;
    int count = static_cast<int>(held.size()), i = 0, of_group = 0;
    Time longer = sim.params().bf_window_linear;
    // Once, and on until it is so wide.
    auto widen = [&](Time least) {
      if (longer != kNone) {
        window += longer * std::max<Time>(1, (least - window + longer - 1) / longer);
        return;
      }
      do window *= 2;
      while (window < least);
    };
    for (; i < count; i++) {
      if (!(held[i].nodes & nodes).any()) continue;
      if (barrier == kNone) barrier = held[i].end - held[i].end % kGroup + kGroup;
      last = held[i].end;
      of_group = i;
      Time next = i + 1 < count ? held[i + 1].end : kNone;
      if (next != kNone && next <= barrier + window) continue;
      if (i + 1 >= ended) break;
      widen(next == kNone ? 0 : next - barrier);
    }
    ended = std::min(i + 1, count);
    plan.note_change(last);
    if (last > sim.clock_.now) return last;
    const Live& job = sim.lives_[held[of_group].slot];
    last = std::max(sim.overdue_end(job), sim.clock_.now + 1);
    plan.note_change(sim.over_time_limit(job) == kYear ? sim.clock_.now + 1 : last);
    return last;
  }
  // What is free after so many jobs' ends, where Engine::pick looks at it.
  Free after(const Engine& sim, int ended, int request) {
    const Request& asked = sim.catalogue->requests[request];
    if (ended == 0 || sim.params().linear || asked.gpus) return sim.free_now();
    cpus = sim.free_cpus_;
    if (asked.by_cpu.memory) memory = sim.free_memory_;
    for (int k = 0; k < ended; k++) {
      const Request& has = sim.catalogue->requests[held[k].request];
      for_each_run(held[k].nodes, [&](int first, int length) {
        for (int i = first; i < first + length; i++) {
          const Node& node = sim.config->nodes[i];
          cpus[i] += has.whole ? node.cpus : has.cpus;
          if (asked.by_cpu.memory) memory[i] += has.whole ? node.memory : has.memory_of(node);
        }
      });
    }
    return {cpus, memory};
  }

  // Nodes for a start at this time that neither kind of reservation holds, and when to look again. `open`: for so long no
  // advanced reservation may be in the way.
  Set candidates(const Engine& sim, const Wish<W>& wish, Time start, Time open, Time& later) {
    if (sim.config->reservations.empty())
      return start == sim.clock_.now ? plan.unreserved_now(wish.usable, wish.limit, later)
                               : plan.unreserved(wish.usable, start, start + wish.limit, later);
    Set taken = sim.taken(wish.reservation, start, start + open) & wish.usable;
    Set nodes = plan.unreserved(wish.usable.without(taken), start, start + wish.limit, later);
    if (taken.any()) {
      Time after = kNever;
      for (const Reservation& item : sim.config->reservations)
        if (item.end >= start) after = std::min(after, item.end);
      after = round_up(after, plan.resolution) + 1;
      if (after < plan.end && after < later) later = after;
    }
    return nodes;
  }
  // What the test of a job on these nodes leaves behind, and its start.
  void note_test(Engine& sim, const Wish<W>& wish, const Set& nodes, const Placement<W>& found) {
    if (sim.leaves_traces() && sim.catalogue->requests[wish.request].gpus) note_gpu_test(sim, wish, nodes, found);
  }
  void note_gpu_test(Engine& sim, const Wish<W>& wish, const Set& nodes, const Placement<W>& found) {
    sim.tested(found.start == kNone ? nodes & wish.able & chain(sim, wish.request, SIZE_MAX).back() : found.nodes, wish.request);
  }
  void note_start(Engine& sim, const Wish<W>& wish, const Set& nodes, const Set& fit) {
    if (!sim.leaves_traces() && !sim.has_preferences()) return;
    sim.attempt(nodes, wish.preferred);
    sim.tested(fit, wish.request);
  }
  // A place for a job that could start now.
  Placement<W> place_now(Engine& sim, const Wish<W>& wish) {
    Time later;
    test_found = false;
    last_test = Set::none();
    Set nodes = candidates(sim, wish, sim.clock_.now, wish.limit, later);
    if (nodes.count() < wish.needed) return {};
    tested++;
    int ended = 0;
    Placement<W> found = first(sim, wish, nodes, ended);
    if (found.start != sim.clock_.now) {
      note_test(sim, wish, nodes, {sim.clock_.now, nodes & wish.able & chain(sim, wish.request, 0)[0]});
      if (found.start != kNone && sim.params().linear && sim.sizes_by_nodes()) last_test = picked(sim, wish, found.nodes, ended, false);
      return {};
    }
    test_found = true;
    note_start(sim, wish, nodes, found.nodes);
    last_test = found.nodes = picked(sim, wish, found.nodes, ended, true);
    return found;
  }
  // Which of these nodes it would get after so many jobs' ends.
  Set picked(Engine& sim, const Wish<W>& wish, const Set& nodes, int ended, bool starts) {
    Free has = after(sim, ended, wish.request);
    return sim.pick(nodes, wish.needed, sim.catalogue->requests[wish.request], has, starts, ended > 0);
  }
  // The first place for a job. It may lie beyond the window.
  Placement<W> earliest(Engine& sim, const Wish<W>& wish) {
    test_found = false;
    last_test = Set::none();
    if (sim.config->reservations.empty() && !sim.sizes_by_nodes())
      if (View<W>* view = plan.view(wish.usable)) return earliest_seen(sim, wish, *view);
    Time later = sim.clock_.now, open = wish.limit;
    int64_t test = tested + 1;
    while (later != kNever) {
      Time start = later;
      Set nodes = candidates(sim, wish, start, open, later);
      if (nodes.count() < wish.needed) continue;
      tested = test;
      int ended = 0;
      Placement<W> found = first(sim, wish, nodes, ended);
      note_test(sim, wish, nodes, found);
      if (found.start == kNone) {
        open = wish.asked;  // slurmctld takes a job's --time-min back then, which only reservations see
        continue;
      }
      test_found = true;
      plan.moved |= found.start < start;
      found.start = std::max(found.start, start);
      bool starts = found.start == sim.clock_.now, too_late = !starts && later != kNever && found.start > later;
      if (too_late && !sim.sizes_by_nodes()) continue;
      if (starts) note_start(sim, wish, nodes, found.nodes);
      last_test = found.nodes = picked(sim, wish, found.nodes, ended, starts);
      if (too_late) continue;
      if (starts || plan.is_beyond(found.start) || !plan.overlaps(found.nodes, found.start, found.start + wish.limit)) return found;
      later = found.start;
    }
    return {};
  }
  // The same, faster, by counts of nodes (Plan::next_try). All that it calls is inlined, which makes whole runs 2 to 6 % faster.
  SLURM_SIM_FLATTEN Placement<W> earliest_seen(Engine& sim, const Wish<W>& wish, View<W>& view) {
    int64_t test = tested + 1;
    Time start = sim.clock_.now;
    int step = plan.step_of_now();
    bool first_try = true;
    for (;; first_try = false) {
      int last;
      if (!plan.next_try(view, wish.needed, wish.limit, start, step, last, first_try)) return {};
      int rise = plan.next_rise(view, step, last + 2);
      Time later = rise < 0 ? kNever : plan.begins[rise];
      Set nodes = wish.usable;
      if (first_try) {
        nodes = nodes & plan.open_through(last);
        plan.note_end_moves(wish.usable, nodes, wish.limit, last, later);
      } else {
        for (int i = step; i <= last; i++) nodes = nodes & plan.nodes[i];
      }
      if (nodes.count() >= wish.needed) {
        tested = test;
        int ended = 0;
        Placement<W> found = first(sim, wish, nodes, ended);
        note_test(sim, wish, nodes, found);
        if (found.start != kNone) {
          test_found = true;
          plan.moved |= found.start < start;
          found.start = std::max(found.start, start);
          if (found.start == sim.clock_.now || later == kNever || found.start <= later) {
            bool starts = found.start == sim.clock_.now;
            if (starts) note_start(sim, wish, nodes, found.nodes);
            found.nodes = picked(sim, wish, found.nodes, ended, starts);
            // At the time of the try itself they are unreserved for as long.
            if (found.start == start || plan.is_beyond(found.start) ||
                !plan.overlaps(found.nodes, found.start, found.start + wish.limit))
              return found;
            start = found.start;
            step = plan.first_after(start);
            if (step >= plan.size()) return past_the_end(sim, wish, start);
            continue;
          }
        }
      }
      if (rise < 0) return {};
      start = later;
      step = rise;
    }
  }
  // Skips jobs that can't start now, as far as that is quickly told.
  void skip(const Engine& sim, size_t& next) {
    const Queued* queue = sim.queue_.data();
    size_t size = sim.queue_.size();
    if (next >= size) return;
    int shape = queue[next].shape;
    const About& it = about(sim, shape);
    for (; next < size && queue[next].shape == shape; next++)
      if (queue[next].nodes <= it.free_count && !it.rules_out(queue[next])) return;
  }
  void make_tables(const Engine& sim, const View<W>& view, const Set& able, int request, Tables& tables) {
    const std::vector<Set>& sets = chain(sim, request, SIZE_MAX);
    int most = std::min(view.usable.count(), kTable), count = plan.size(), step = plan.step_of_now();
    int rise = plan.next_rise(view, step, count), runs = static_cast<int>(held.size()), ended = 0;
    tables.misses = 0;
    tables.version = tables.checked = plan.version;
    tables.nowhere_from.assign(most + 1, 0);
    tables.hopeless_from.assign(most + 1, 0);
    tables.hopeless_start = rise < 0 ? kNever : plan.begins[rise];
    int enough = most, last;
    for (int i = step; i < count && enough > 0; i++) {
      Set left = able & sets[0] & plan.open_until(std::max(plan.begins[i], sim.clock_.now), last);
      enough = note(tables.nowhere_from, enough, left.count(), plan.begins[i] - sim.clock_.now);
    }
    note(tables.nowhere_from, enough, 0, kNever);
    // Later, a job can begin when a running one ends, or at a rise: any other time is no better than the last of these.
    // Nor is an end whose nodes are all reserved then. The end of a group (cons_tres) is the end of a job, or comes later.
    while (ended < runs || rise >= 0) {
      Time end = ended < runs ? std::max(held[ended].end, sim.clock_.now + 1) : kNever;
      Time start = rise < 0 ? end : std::min(end, plan.begins[rise]);
      if (start > plan.last_start) break;
      const Set& free_before = sets[ended];
      while (ended < runs && std::max(held[ended].end, sim.clock_.now + 1) <= start) ended++;
      while (step + 1 < count && plan.begins[step + 1] <= start) step++;
      Set left = able & sets[ended];
      bool rises = rise >= 0 && plan.begins[rise] <= start;
      if (start >= plan.end) {  // after the last step, where no reservation is in the way
        enough = note(tables.nowhere_from, most, left.count(), 0);
        note(tables.nowhere_from, enough, 0, kNever);
        continue;
      }
      if (!rises && !(left & plan.nodes[step]).without(free_before).any()) continue;
      enough = most;
      for (int i = step; i < count && enough > 0; i++) {
        left = left & plan.nodes[i];
        enough = note(tables.nowhere_from, enough, left.count(), plan.begins[i] + plan.resolution - start);
      }
      note(tables.nowhere_from, enough, 0, kNever);
      if (rises) {
        enough = most;
        left = view.usable;
        for (int i = rise; i < count && enough > 0; i++) {
          left = left & plan.nodes[i];
          enough = note(tables.hopeless_from, enough, left.count(), plan.begins[i] - start);
        }
        note(tables.hopeless_from, enough, 0, kNever);
        rise = plan.next_rise(view, rise, count);
      }
    }
    if (rise >= 0) tables.hopeless_start = kNever;
    spread(tables.nowhere_from);
    spread(tables.hopeless_from);
  }
  // Until when enough nodes are unreserved from now on.
  Time enough_until(const Engine& sim, View<W>& view, int needed, Time limit) {
    int last, count = plan.size();
    if (view.now_version != plan.version) {
      view.now_version = plan.version;
      view.now_asked = 0;
    }
    if (++view.now_asked < 8) {
      if ((view.usable & plan.open_until(sim.clock_.now + limit, last)).count() < needed) return sim.clock_.now;
      return last + 1 < count ? plan.begins[last + 1] : kNever;  // at least
    }
    if (view.now_asked == 8) {
      int enough = std::min(view.usable.count(), kTable);
      view.enough_until.assign(enough + 1, 0);
      for (int i = plan.step_of_now(); i < count && enough > 0; i++) {
        Set left = view.usable & plan.open_until(std::max(plan.begins[i], sim.clock_.now), last);
        enough = note(view.enough_until, enough, left.count(), std::max(plan.begins[i], sim.clock_.now));
      }
      note(view.enough_until, enough, 0, kNever);
      spread(view.enough_until);
    }
    return view.enough_until[needed];
  }
  enum class Guess { kNone, kUntested, kTested };
  // Whether the tables tell that the job has no place in the plan; if so, whether it counts as tested. They can't tell
  // whether its tries would be news (`moved`), so they serve only once that no longer matters.
  Guess guess(const Engine& sim, const Queued& job) {
    About& it = abouts[job.shape];
    Tables& tables = it.tables;
    if (!it.view) {
      about(sim, job.shape);
      it.view = plan.view(it.usable);
      tables.nowhere_from.clear();
      tables.misses = 0;
      if (!it.view) return Guess::kNone;
    }
    if (tables.misses >= Tables::kMisses && tables.version != plan.version)
      make_tables(sim, *it.view, it.able, sim.catalogue->shapes[job.shape].request, tables);
    if (job.nodes >= static_cast<int>(tables.nowhere_from.size()) || job.limit < tables.nowhere_from[job.nodes])
      return Guess::kNone;
    Time until = enough_until(sim, *it.view, job.nodes, job.limit);
    if (until <= sim.clock_.now + job.limit)
      return hopeless_holds(*it.view, tables) && job.limit >= tables.hopeless_from[job.nodes] ? Guess::kUntested : Guess::kNone;
    if (!plan.moved) return Guess::kNone;
    if (until != kNever) test_ends.push_back(until - job.limit);
    return Guess::kTested;
  }
  // Starts before the first rise that the tables know are not in them.
  bool hopeless_holds(const View<W>& view, Tables& tables) {
    if (tables.checked != plan.version && tables.hopeless_start != kNever) {
      tables.checked = plan.version;
      int rise = plan.next_rise(view, plan.step_of_now(), plan.size());
      if (rise < 0 || plan.begins[rise] < tables.hopeless_start) tables.hopeless_start = kNever;
    }
    return tables.hopeless_start != kNever;
  }
  // A try past the plan's last step: all nodes are unreserved.
  SLURM_SIM_APART Placement<W> past_the_end(Engine& sim, const Wish<W>& wish, Time start) {
    int ended = 0;
    if (wish.usable.count() < wish.needed) return {};
    Placement<W> found = first(sim, wish, wish.usable, ended);
    note_test(sim, wish, wish.usable, found);
    if (found.start == kNone) return {};
    test_found = true;
    plan.moved |= found.start < start;
    found.start = std::max(found.start, start);
    found.nodes = picked(sim, wish, found.nodes, ended, false);
    if (plan.is_beyond(found.start) || !plan.overlaps(found.nodes, found.start, found.start + wish.limit)) return found;
    return past_the_end(sim, wish, found.start);
  }
};

template <int W>
typename Engine<W>::Scratch& Engine<W>::scratch() {
  static thread_local Scratch room;
  return room;
}
}  // namespace slurm_sim
