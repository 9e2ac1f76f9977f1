// Slurm's backfill scheduler, as in passes.py: which of the queued jobs start now without delaying those before them. It
// starts jobs, gives reasons, and keeps in `skips_` what its plan says about later passes.
#pragma once
#include "scratch.inl"

namespace slurm_sim {

// One pass. Starts what delays no reservation; each tested job that can't start now gets one on the nodes it would have.
// Reservations don't outlive the pass, so it ends after the last job that could start now, once it is clear what news
// the pass makes. `go_on`: the last pass's plan holds, and this one only looks at the jobs after it.
template <int W>
struct Engine<W>::Backfill {
  Engine& sim;
  Scratch& room;
  Plan<W>& plan = room.plan;
  const Params& p = sim.params();
  const size_t size = sim.queue_.size();
  const bool may_refuse = sim.config->any_limit || sim.special_ > 0;  // a job that fits may not start all the same
  const bool tables_tell = sim.config->reservations.empty();
  const bool all_tests = sim.leaves_traces();
  const bool plain = p.linear && tables_tell && !all_tests && !may_refuse && !p.counts_jobs() && !p.keeps_few();
  const bool sizes_by_tests = sim.sizes_by_tests(), sizes_by_nodes = sim.sizes_by_nodes();
  const Traces<W> traces_before = all_tests ? sim.traces_ : Traces<W>{};

  size_t awaiting = 0;       // jobs up to this place await their first test, which tells their size
  bool none_starts = false;  // from here on
  bool told = false;         // what news there is
  bool to_the_end = false;   // somebody after the last who could start gets a reason
  int idle_wanted = -1;      // not asked yet
  uint64_t next_of = 0;      // the version of the plan for which room.next is known
  size_t places = SIZE_MAX;  // the jobs from there on do not matter, nor does their order

  void run(bool go_on) {
    go_on ? begin_again() : begin();
    if (sim.untested_)
      for (size_t i = 0; i < size; i++)
        if (awaits_test(sim.queue_[i])) awaiting = i + 1;
    for (size_t& i = room.planned; i < size; i++) {
      if (!all_tests && !none_starts) find_next_start(i);
      if (none_starts && i >= awaiting && news_is_clear(i)) break;
      if (room.tested >= p.max_job_test) {
        room.over = true;
        places = i;
        plan.note_change(goes_further(places));
        break;
      }
      if (!look_at(i)) break;
    }
    if (!told) sim.note_news(room);
    if (p.min_age_reserve)
      for (const Queued& job : sim.queue_)
        if (job.slot >= 0) plan.note_change(sim.lives_[job.slot].eligible + p.min_age_reserve);
    if (room.started) sim.forget_started();
    if (sim.untested_)
      sim.untested_ = std::ranges::any_of(
          sim.queue_, [&](const Queued& job) { return sim.takes_turn(job) && sim.awaits_test(sim.lives_[job.slot]); });
    if (!room.started) keep();
  }

 private:
  // Who is over a limit of jobs is not tested, nor later in this pass.
  bool awaits_test(const Queued& queued) {
    if (!sim.takes_turn(queued)) return false;
    const Live& job = sim.lives_[queued.slot];
    return sim.awaits_test(job) && room.jobs_limit_reached(sim, job) == Reason::kNone;
  }
  void begin() {
    forget_last();
    plan.begin(sim.clock_.now, p.bf_window, p.bf_resolution, sim.up_);
    room.tested = 0;
    room.test_ends.clear();
    room.planned = room.next = 0;
    room.over = false;
    room.rejected.clear();
    room.reserved.clear();
    room.expected.clear();
    room.looked_at.clear();
    if (p.counts_jobs()) room.looked_at.make_room(sim);
    room.reserved_in.assign(sim.config->partitions.size(), 0);
    room.outlook_begins(sim);
  }
  void begin_again() {
    forget_last();
    plan.go_on(sim.clock_.now, p.bf_window);
    if (p.counts_jobs()) room.looked_at.make_room(sim);
  }
  void forget_last() {
    room.started = 0;
    room.plan_id = 0;
    room.verdicts_of++;
  }

  // ---- whether it needs to go on

  // The first job from this one on that could start now, as room.next.
  void find_next_start(size_t from) {
    if (room.next >= from && next_of == plan.version) return;
    next_of = plan.version;
    room.next = std::max(room.next, from);
    while (room.next < size && !startable(sim.queue_[room.next])) room.skip(sim, ++room.next);
    none_starts = room.next == size;
    to_the_end = none_starts && tells_news(from);
  }
  // Whether it could start in this pass, if its turn came now. What can't, won't: starts and reservations only take.
  bool startable(const Queued& job) {
    auto& about = room.about(sim, job.shape);
    if (job.nodes > about.free_count) return false;
    if (tables_tell) {
      if (!room.unreserved_and_free(sim, about, job)) return false;
    } else {
      int last;
      Time end = sim.clock_.now + job.limit;
      Set free = about.free.without(sim.taken(sim.catalogue->shapes[job.shape].reservation, sim.clock_.now, end));
      if ((free & plan.open_until(end, last)).count() < job.nodes) return false;
    }
    if (!may_refuse) return true;
    if (!sim.takes_turn(job)) return false;
    const Live& live = sim.lives_[job.slot];
    Use<W> at_best = sim.use_by(live, sim.config->least, false);
    if (sim.shares_nodes()) at_best.where = &about.usable;
    return room.limit_reached(sim, live, at_best) == Reason::kNone && !sim.throttled(live);
  }
  // Whether a job from here on would get a reason that it does not have yet, if the pass went on.
  bool tells_news(size_t from) {
    if (sim.skips_.limits_noted || !may_refuse) return false;
    bool news = std::any_of(sim.queue_.begin() + from, sim.queue_.end(), [&](const Queued& job) {
      return sim.takes_turn(job) && sim.gets_reason(room, sim.lives_[job.slot]);
    });
    sim.skips_.limits_noted = !news && from == 0;
    return news;
  }
  // None can start from this place on: whether the rest would change neither a reason nor what news the pass makes.
  bool news_is_clear(size_t place) {
    if (place == 0 && plain && sim.first_tells_news(room)) {
      told = true;
      places = 1;
      return true;
    }
    if (to_the_end) return false;
    // With PLANNED nodes there is news whatever comes; without idle ones none can become PLANNED.
    sim.note_news(room);
    if (sim.clock_.moved && idle_wanted < 0) idle_wanted = sim.idle_nodes_wanted();
    if (!sim.clock_.planned && !(sim.clock_.moved && !idle_wanted)) return false;
    places = place;
    return true;
  }
  // Of a pass that bf_max_job_test ends before this place: as time goes on fewer jobs count as tested, and it would get
  // further. Looking at the jobs up to the place that `from` becomes would change nothing; returns when it would get beyond.
  Time goes_further(size_t& from) {
    constexpr size_t kFurther = 64;
    size_t more = 0;
    bool told_by_tables = tables_tell && plan.records < p.node_space && !all_tests;
    if (told_by_tables && !p.counts_jobs() && !p.keeps_few() && sim.special_ == 0)
      for (; from < size && from != room.next && more < kFurther; from++) {
        const Queued& next = sim.queue_[from];
        if (sim.untested_ && awaits_test(next)) break;
        if (sim.config->any_limit) {
          const Live& job = sim.lives_[next.slot];
          Reason limit = room.jobs_limit_reached(sim, job);
          if (limit != Reason::kNone && limit == job.reason) continue;
          if (limit != Reason::kNone) break;
        }
        auto guess = room.guess(sim, next);
        if (guess == Scratch::Guess::kNone) break;
        more += guess == Scratch::Guess::kTested;
      }
    if (more >= room.test_ends.size()) return kNever;
    std::nth_element(room.test_ends.begin(), room.test_ends.begin() + more, room.test_ends.end());
    return room.test_ends[more];
  }

  // ---- one job after the other

  // Starts the job of this place, plans it, or leaves it. Returns whether the pass goes on.
  bool look_at(size_t place) {
    const Queued& queued = sim.queue_[place];
    // The tables come first, as most jobs of a long queue have no place. With limits, arrays or counts a job without a place
    // may still get a reason or be counted, so those come before the tables (`ask_tables`).
    if (plain && has_no_place(queued)) return true;
    if (!sim.takes_turn(queued)) return true;
    Live& job = sim.lives_[queued.slot];
    if (job.array >= 0 && sim.throttled(job)) {
      sim.set_reason(job, Reason::kArrayTaskLimit);
      room.reject(sim.array_here(job));
      return true;
    }
    if (room.is_rejected(sim.array_here(job))) return true;
    if (Reason limit = room.jobs_limit_reached(sim, job); limit != Reason::kNone)
      return limited(job, limit);
    if (!counts(job)) return true;
    // From here on it may start now, but for some it is not worth a reservation.
    bool full = p.part_reserve != kNone && room.reserved_in[job.partition] >= p.part_reserve;
    bool has_one = p.one_reservation && job.several && room.is_expected(job.job);
    bool only_now = has_one || (p.keeps_few() && (sim.has_no_claim(job) || full));
    // Some tests matter even if they find no place: for the job's size, for what they leave on nodes, or for when the job's
    // other partitions may expect it.
    bool its_test_tells = (sizes_by_tests && sim.awaits_test(job)) || (all_tests && (sim.request(job).gpus || sizes_by_nodes));
    bool its_start_tells = job.several && p.one_reservation;  // also one too late for a reservation
    bool ask_tables = !plain && !only_now && tables_tell && !its_test_tells && !its_start_tells;
    int reservation = sim.shape(job).reservation;
    if ((ask_tables && has_no_place(queued)) || (reservation >= 0 && !sim.is_open(reservation, sim.clock_.now))) {
      room.reject(sim.array_here(job));
      return true;
    }
    return plan_or_start(place, job, only_now);
  }
  bool limited(Live& job, Reason limit) {
    if (job.reason != limit) sim.skips_.main_quiet = false;  // a main pass may tell another reason
    sim.set_reason(job, limit);
    room.reject(sim.array_here(job));
    return true;
  }
  bool has_no_place(const Queued& job) {
    if (plan.records >= p.node_space) return false;
    auto guess = room.guess(sim, job);
    room.tested += guess == Scratch::Guess::kTested;
    return guess != Scratch::Guess::kNone;
  }
  // Whether fewer jobs of its partition and user were looked at than backfill may. If so, this one counts.
  bool counts(const Live& job) {
    if (!p.counts_jobs()) return true;
    auto counted = room.looked_at.of(sim, job);
    for (auto [count, most] : counted)
      if (most != kNone && *count >= most) return false;
    for (auto [count, most] : counted) ++*count;
    return true;
  }
  bool plan_or_start(size_t index, Live& job, bool only_now) {
    const Queued& queued = sim.queue_[index];
    const Shape& its = sim.catalogue->shapes[queued.shape];
    const auto& about = room.about(sim, queued.shape);
    Wish<W> wish{about.usable, about.able, queued.nodes, its.request, its.reservation, queued.limit,
                 job.limit == kNone ? kYear : job.limit, sim.preferred(job)};
    Placement<W> place = only_now ? room.place_now(sim, wish) : room.earliest(sim, wish);
    if (sizes_by_nodes) sim.note_test(job, room.last_test);
    else if (sizes_by_tests && room.test_found && sim.awaits_test(job)) sim.note_tested(job, job.nodes * sim.held_cpus(job));
    if (place.start == kNone && !only_now) room.abouts[queued.shape].tables.misses++;
    if (place.start == kNone || (place.start > sim.clock_.now && plan.is_beyond(place.start))) {
      if (place.start != kNone && job.several) room.expects(job.job, place.start);
      room.reject(sim.array_here(job));
      return true;
    }
    if (sim.config->any_limit) {
      Use<W> use = place.start == sim.clock_.now ? sim.use_to_start(job, place.nodes) : sim.use_planned(job, place.nodes);
      if (Reason limit = room.limit_reached(sim, job, use); limit != Reason::kNone) return limited(job, limit);
    }
    return place.start > sim.clock_.now ? reserve(job, wish, place) : start(index, job, wish, place);
  }
  bool reserve(const Live& job, const Wish<W>& wish, const Placement<W>& place) {
    if (!job.several || room.expects(job.job, place.start)) plan.planned = plan.planned | place.nodes;
    if (plan.records >= p.node_space) {
      room.over = true;
      return false;
    }
    plan.reserve(place.start, place.start + wish.limit, place.nodes);
    room.reserved_in[job.partition]++;
    if (job.array >= 0 && ++room.reserved_of(sim.array_here(job)) >= p.max_array_resv) room.reject(sim.array_here(job));
    return true;
  }
  bool start(size_t index, const Live& job, const Wish<W>& wish, const Placement<W>& place) {
    Time limit = limit_at_start(wish, place.nodes);
    if (job.flexible) sim.lives_[sim.queue_[index].slot].limit = limit;
    Held<W> held{sim.clock_.now + limit + job.suspended, place.nodes, wish.request, sim.queue_[index].slot};
    sim.start_job(std::exchange(sim.queue_[index].slot, -1), place.nodes, 2);
    room.verdicts_of++;
    room.outlook_started(held);
    // Slurm marks whole nodes in its plan when such a job starts; select/linear does not know the mark.
    if (!p.linear && sim.catalogue->requests[wish.request].whole && plan.records < p.node_space)
      plan.reserve(0, sim.clock_.now + limit, place.nodes);
    room.started++;
    return p.max_job_start == kNone || room.started < p.max_job_start;
  }
  // The time limit with which a job starts on these nodes (`_reset_job_time_limit`, `job_time_adj_resv`).
  Time limit_at_start(const Wish<W>& wish, const Set& nodes) const {
    if (!p.time_min_extends || wish.limit == wish.asked) return wish.limit;
    Time now = sim.clock_.now, end = now + wish.asked;
    Time kept = std::min(plan.first_conflict(nodes, end), sim.first_reserved(wish.reservation, nodes, end));
    return std::max(wish.limit, kept == kNever ? wish.asked : (kept - now) / 60 * 60);
  }

  // What this pass found holds for later ones, until something changes.
  void keep() {
    if (!tables_tell) return;
    if (all_tests) {
      if (sizes_by_nodes) return;
      sim.skips_.keep_pass({traces_before, sim.traces_, size, plan.valid_until, sim.clock_.moved, sim.clock_.planned});
      return;
    }
    static std::atomic<uint64_t> plans{0};
    room.plan_id = ++plans;
    sim.skips_.keep_plan(room.plan_id, plan.valid_until, places);
  }
};

template <int W>
void Engine<W>::backfill_pass() {
  Time begun_us = clock_.now * kSecondUs + clock_.last_backfill_us % kSecondUs;
  if (note_reasons()) clock_.last_news = clock_.now;
  review_all();
  order_queue(begun_us % kSecondUs);
  clock_.last_backfill_us = begun_us + cycle_us();
  clock_.backfill_due = kNever;
  if (thorough) disturb();
  bool go_on = false, were_planned = clock_.planned;
  Scratch& room = scratch();
  if (queue_.empty()) {
    clock_.moved = clock_.planned = false;
  } else if (!seen_before() && !backfill_is_quiet(room, go_on)) {
    Backfill{*this, room}.run(go_on);
  }
  settle();
  // A pass begins by taking back what the last one had planned: that is a change, too. So is, once more, what changed
  // before the pass in the second in which it ends.
  bool in_last_second = clock_.last_news >= clock_.last_backfill_us / kSecondUs;
  bool any = !events_.empty() || next_submit_ < static_cast<int32_t>(trace->by_submit.size());
  if (any && (clock_.moved || clock_.planned || were_planned || in_last_second)) clock_.news_for_backfill(params());
}

// Of the pass so far: what it changes in slurmctld's eyes, besides the jobs that it starts.
template <int W>
void Engine<W>::note_news(const Scratch& room) {
  clock_.moved = room.plan.moved || room.started;
  clock_.planned = (room.plan.planned & idle_).any();
}

// Whether the queue's first job alone tells what news the pass makes (select/linear, no start is possible): it would have
// an idle node, or there is no other job.
template <int W>
bool Engine<W>::first_tells_news(Scratch& room) {
  const Queued& job = queue_[0];
  if (queue_.size() > 1 && !idle_.any()) return false;
  const Set& usable = room.about(*this, job.shape).usable;
  Set busy = Set::none(), idle = usable & idle_;
  auto run = running_.begin();
  int missing = job.nodes - idle.count();
  while (run != running_.end() && busy.count() < missing) busy = busy | (usable & (run++)->nodes);
  bool placed = busy.count() >= missing && !room.plan.is_beyond(std::max(std::prev(run)->end, clock_.now + 1));
  // It needs an idle one, or might take one.
  clock_.planned = placed && idle.any() &&
             (busy.count() < job.nodes ||
              (pick(busy | idle, job.nodes, request(lives_[job.slot]), free_now(), false) & idle).any());
  clock_.moved = false;
  return clock_.planned || queue_.size() == 1;
}

// Whether a pass that looks at this job without starting it may tell it a reason that it does not have yet: a limit's.
template <int W>
bool Engine<W>::gets_reason(Scratch& room, const Live& job) const {
  if (job.array >= 0 && extras(spec(job.job))->throttle != kNone && job.reason != Reason::kArrayTaskLimit) return true;
  // On the nodes that leave least to others, and on those that leave most.
  return std::ranges::any_of(std::array{&config->most, &config->least}, [&](const Node* node) {
    Reason limit = room.limit_reached(*this, job, use_by(job, *node, true));
    return limit != Reason::kNone && limit != job.reason;
  });
}

// Whether a competing job may use an idle node, which would become PLANNED if it is expected to start there.
template <int W>
bool Engine<W>::idle_nodes_wanted() const {
  Set idle = idle_ & up_;
  if (!idle.any()) return false;
  for (size_t shape = 0; shape < demand_.size(); shape++)
    if (demand_[shape].jobs && (idle & set_of(catalogue->shapes[shape].suitable)).any()) return true;
  return false;
}

// Whether a backfill pass now finds all as one before did; then what that one left is taken over.
template <int W>
bool Engine<W>::seen_before() {
  for (const IdlePass<W>& pass : skips_.passes) {
    if (clock_.now >= pass.until || queue_.size() != pass.queued || pass.before != traces_) continue;
    traces_ = pass.after;
    clock_.moved = pass.moved;
    clock_.planned = pass.planned;
    return true;
  }
  return false;
}

// Whether a backfill pass now would start nothing, change no reason and make the same news, because the last one started
// nothing and changed no reason, and since then at most jobs have come behind those that it depended on. `go_on`: the last
// pass's plan holds, and only those jobs need a look.
template <int W>
bool Engine<W>::backfill_is_quiet(Scratch& room, bool& go_on) {
  if (clock_.now >= skips_.quiet_until) return false;
  if (skips_.unseen.empty()) return true;
  bool known = skips_.plan && room.plan_id == skips_.plan && catalogue->shapes.size() == room.abouts.size();
  if (known && room.over) return true;
  go_on = known && !config->any_limit && !special_;
  room.verdicts_of++;
  for (int32_t slot : skips_.unseen) {
    const Live& job = lives_[slot];
    if (job.several || awaits_test(job)) return false;
    Set usable = up_ & set_of(shape(job).suitable);
    if (!clock_.planned && (!clock_.moved || (idle_ & usable).any())) return false;  // it may make news
    if ((hosts(shape(job).request) & usable).count() >= job.nodes) return false;
    if (gets_reason(room, job)) return false;
  }
  skips_.unseen.clear();
  return true;
}

}  // namespace slurm_sim
