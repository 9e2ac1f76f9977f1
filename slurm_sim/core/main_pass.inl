// Slurm's main scheduler, as in passes.py: which of the queued jobs start now, in strict order. It starts jobs, gives
// reasons, and writes `skips_.main_quiet` and `main_passes_over`.
#pragma once
#include "scratch.inl"

namespace slurm_sim {

template <int W>
void Engine<W>::main_pass() {
  bool full = clock_.now == clock_.next_full();
  if (full || clock_.main_due <= clock_.now) {  // it is asked for now
    clock_.last_main = clock_.now;
    clock_.main_due = kNever;
  }
  if (full) {
    clock_.last_full = clock_.now;
    clock_.main_wanted = false;
  }
  if (params().sched_min_interval && clock_.puts_off(params(), full)) return;
  bool news = note_reasons();
  review_all();
  order_queue(kTickPhaseUs);
  if (thorough) disturb();
  if (skips_.main_quiet ? skips_.main_passes_over <= main_depth(full) : run_main(full)) news = true;
  if (news) clock_.news_for_backfill(params());
  settle();
}

// Starts jobs in strict order. One that does not fit stops its partition, and keeps all of the partition's nodes from
// the jobs after it; in a reservation it stops that. A limit, or the lack of nodes that are not reserved, stops only the job
// itself. Returns whether there is news for backfill: jobs that were passed over, or could not run if no other job ran.
template <int W>
bool Engine<W>::run_main(bool full) {
  Scratch& room = scratch();
  size_t size = queue_.size();
  const Params& p = params();
  int64_t depth = main_depth(full), tested = 0, passed_over = kNever, started = 0;
  bool settled = true;  // the next pass finds all as it is now
  const bool plain = special_ == 0 && p.partition_depth == kNone;
  room.main_of_partition.assign(config->partitions.size(), 0);
  room.stopped.assign(config->partitions.size(), 0);
  room.stopped_reservation.assign(config->reservations.size(), 0);
  room.rejected.clear();
  room.verdicts_of++;
  // Partitions that are not stopped yet.
  auto open = std::count_if(competing_of_.begin(), competing_of_.end(), [](int32_t jobs) { return jobs > 0; });
  Set kept = Set::none();
  for (size_t i = 0; i < size; i++) {
    if (p.main_max_start != kNone && started >= p.main_max_start) break;
    if (!takes_turn(queue_[i])) continue;
    int32_t slot = queue_[i].slot;
    Live& job = lives_[slot];
    if (job.array >= 0) {
      if (room.is_rejected(array_here(job))) continue;
      if (throttled(job)) {
        set_reason(job, Reason::kArrayTaskLimit);
        room.reject(array_here(job));
        continue;
      }
    }
    if (p.partition_depth != kNone && ++room.main_of_partition[job.partition] > p.partition_depth) {
      if (job.reason == Reason::kNone) {
        job.reason = Reason::kPriority;
        passed_over = std::min(passed_over, tested);
        settled = false;
      }
      room.reject(array_here(job));
      continue;
    }
    if (++tested > depth) break;
    int reservation = shape(job).reservation;
    bool stops = false;
    uint8_t& gate = reservation < 0 ? room.stopped[job.partition] : room.stopped_reservation[reservation];
    if (gate) {
      passed_over = std::min(passed_over, tested);
      if (job.reason == Reason::kNone || job.reason == Reason::kResources) job.reason = Reason::kPriority;
    } else if (Reason known = known_limit(room, job); known != Reason::kNone) {
      waits_for(job, known);
    } else if (is_out_of_reach(job, kept)) {
      if (job.reason != Reason::kNone && job.reason != Reason::kResources) unmarked_.push_back(slot);
      waits_for(job, Reason::kResources);
      passed_over = std::min(passed_over, tested);
      stops = true;
    } else if (Reason limit = use_is_known(job) ? room.limit_reached(*this, job, use_by(job, config->least, false))
                                                : room.jobs_limit_reached(*this, job);
               limit != Reason::kNone) {
      waits_for(job, limit);
    } else {
      Reason before = job.reason, why = Reason::kNone;
      Set nodes = fitting(job, kept, why);
      if (sizes_by_nodes() || awaits_test(job) || (config->any_limit && !use_is_known(job))) {
        Set seen = nodes.any() ? nodes : possible(job);
        note_test(job, p.linear ? seen : nodes);
        limit = resources_limit_reached(job, nodes.any() ? use_to_start(job, seen) : Use<W>{use_of_nodes(job, seen)});
      }
      if (limit != Reason::kNone) {
        waits_for(job, limit);
      } else if (nodes.any()) {
        queue_[i].slot = -1;
        started++;
        start_job(slot, nodes, 1);
        room.verdicts_of++;
        for_each_choice(job, [&](int32_t choice) {
          int partition = catalogue->shapes[choice].partition;
          if (competing_of_[partition] == 0 && !room.stopped[partition]) open--;
        });
        continue;
      } else {
        waits_for(job, why);
        if (before != Reason::kNone && before != Reason::kResources) unmarked_.push_back(slot);
      }
      if (job.reason == Reason::kNodeNotAvail) {
        passed_over = std::min(passed_over, tested);
        settled = false;  // a start on one of its nodes changes the reason
      }
      if (job.reason == Reason::kResources) {
        stops = !has_no_claim(job) || reservation >= 0;
        settled = settled && stops;
      }
    }
    if (stops) {
      gate = 1;
      if (reservation < 0) {
        kept = kept | set_of(config->partitions[job.partition].nodes);
        if (--open == 0 && plain) {
          if (mark_rest(i + 1, std::min<int64_t>(size, depth))) passed_over = std::min(passed_over, tested + 1);
          break;
        }
      }
    }
    room.reject(array_here(job));
  }
  if (started) forget_started();
  // A job in several partitions may get another reason from a pass that does not come to its last turn.
  settled = settled && (several_ == 0 || static_cast<int64_t>(size) <= main_depth(false));
  if (full && !started && settled && config->reservations.empty() && !leaves_traces()) {
    skips_.main_quiet = true;
    skips_.main_passes_over = passed_over;
  }
  return passed_over != kNever;
}

// The limit of jobs that it waits for, if it is known to wait for one: slurmctld looks at that first.
template <int W>
Reason Engine<W>::known_limit(Scratch& room, const Live& job) const {
  return job.reason > Reason::kArrayTaskLimit ? room.jobs_limit_reached(*this, job) : Reason::kNone;
}

// Its reason to wait. If a limit was, backfill may tell it again.
template <int W>
void Engine<W>::waits_for(Live& job, Reason reason) {
  if (is_limited(job.reason) && reason != job.reason) {
    disturb();
    skips_.limits_noted = false;
  }
  set_reason(job, reason);
}

// All partitions are stopped: the jobs of these places in the queue wait for those before. Only few don't say so yet.
template <int W>
bool Engine<W>::mark_rest(size_t first, size_t last) {
  if (first >= last) return false;
  size_t kept = 0;
  for (int32_t slot : unmarked_) {
    Live& job = lives_[slot];
    bool marked = job.reason != Reason::kNone && job.reason != Reason::kResources;
    if (marked || job.state != State::kPending || job.place >= 0) continue;
    bool after = !before(slot, queue_[first].slot), looked_at = last == queue_.size() || before(slot, queue_[last].slot);
    if (after && looked_at) job.reason = Reason::kPriority;
    else unmarked_[kept++] = slot;
  }
  unmarked_.resize(kept);
  return true;
}

// Whether the nodes of its partition that are up and not kept for others are too few.
template <int W>
bool Engine<W>::is_out_of_reach(const Live& job, const Set& kept) const {
  return (set_of(config->partitions[job.partition].nodes) & up_).without(kept).count() < job.nodes;
}

// The nodes on which it could start now, or why there are none.
template <int W>
NodeSet<W> Engine<W>::fitting(const Live& job, const Set& kept, Reason& why) {
  const Shape& its = shape(job);
  Set usable = up_ & set_of(its.suitable), open = up_ & set_of(its.listed);
  if (!config->reservations.empty()) {
    open = open.without(taken(its.reservation, clock_.now, clock_.now + (job.limit == kNone ? kYear : job.limit)));
    if (its.reservation >= 0 && !is_open(its.reservation, clock_.now)) open = Set::none();
  }
  Set nodes = (hosts(its.request) & open & usable).without(kept);
  if (leaves_traces() || has_preferences()) {
    attempt(set_of(its.listed), preferred(job));
    tested(nodes.count() >= job.nodes ? nodes : usable.without(kept), its.request);
  }
  if (nodes.count() >= job.nodes) return pick(nodes, job.nodes, catalogue->requests[its.request], free_now(), true);
  why = missing(job, open, kept);
  return Set::none();
}

// Why a job that could run in its partition does not start: the errors of slurmctld's select_nodes, as reasons. Whether the
// nodes have the GPUs it sees only as it tests them, not as it looks for busy ones.
template <int W>
Reason Engine<W>::missing(const Live& job, const Set& open, const Set& kept) const {
  if (!open.any()) return Reason::kReservation;
  Set candidates = open.without(kept);
  if ((candidates & set_of(shape(job).suitable)).count() >= job.nodes) return Reason::kResources;
  const Set& vacant = catalogue->requests[shape(job).request].whole ? idle_ : shared_;
  return candidates.without(vacant).any() ? Reason::kResources : Reason::kNodeNotAvail;
}

}  // namespace slurm_sim
