#include "vector_env.hpp"

#include <cstring>

namespace slurm_sim {

// As numpy.percentile, linear; of nothing, 0.
const double* Percentiles::of(const std::vector<int32_t>& values) {
  if (values == values_) return found_;
  if (!adapt(values)) {
    sorted_ = values;
    std::sort(sorted_.begin(), sorted_.end());
  }
  values_ = values;
  if (values.empty()) {
    std::fill(found_, found_ + kCount, 0.0);
    return found_;
  }
  size_t last = sorted_.size() - 1;
  for (size_t i = 0; i < kCount; i++) {
    size_t low = i * last / 4, rest = i * last % 4;
    double from = sorted_[low], to = sorted_[std::min(low + 1, last)];
    found_[i] = from + (to - from) * (static_cast<double>(rest) / 4);
  }
  return found_;
}

// Puts in and takes out of the sorted values what differs from the last ones. Any alignment of the two gives the same
// result; a bad one only takes longer. False: there are many differences, so sorting anew is cheaper.
bool Percentiles::adapt(const std::vector<int32_t>& values) {
  const std::vector<int32_t>& old = values_;
  size_t changes = 0, most = 4 + values.size() / 8;
  for (size_t i = 0, j = 0; i < old.size() || j < values.size();) {
    if (i < old.size() && j < values.size() && old[i] == values[j]) {
      i++;
      j++;
      continue;
    }
    if (++changes > most) return false;
    bool gone = j == values.size() || (i + 1 < old.size() && old[i + 1] == values[j]);
    bool came = i == old.size() || (!gone && j + 1 < values.size() && old[i] == values[j + 1]);
    if (!came) sorted_.erase(std::lower_bound(sorted_.begin(), sorted_.end(), old[i++]));
    if (!gone) {
      sorted_.insert(std::upper_bound(sorted_.begin(), sorted_.end(), values[j]), values[j]);
      j++;
    }
  }
  return true;
}

Lanes::Lanes(int count, EnvTask task, std::vector<uint64_t> nodes, std::vector<uint8_t> partitions,
             std::vector<float> scale)
    : task_(task), scale_(std::move(scale)), lanes_(count) {
  for (Lane& lane : lanes_) {
    lane.watch.nodes = nodes;
    lane.watch.partitions = partitions;
    lane.rows.resize(static_cast<size_t>(task_.history) * 2 * kColumns);
  }
}

void Lanes::add_start(Core& core, int64_t predecessor, int64_t successor, std::vector<float> history) {
  starts_.push_back({core.fork(), predecessor, successor, std::move(history)});
}

void Lanes::step(const int64_t* actions, const int64_t* starts, const StepOut& out) {
  size_t width = static_cast<size_t>(task_.history) * kColumns;
  for (size_t i = 0; i < lanes_.size(); i++) {
    Lane& lane = lanes_[i];
    out.rewards[i] = 0;
    if (starts[i] >= 0) begin(lane, starts_[starts[i]]);
    else out.rewards[i] = act(lane, actions[i]);
    std::memcpy(out.observations + i * width, lane.rows.data() + static_cast<size_t>(lane.first) * kColumns,
                width * sizeof(float));
    out.terminated[i] = lane.terminated;
    out.truncated[i] = lane.truncated;
    std::copy(lane.facts, lane.facts + kFacts, out.facts + i * kFacts);
  }
}

void Lanes::begin(Lane& lane, const Start& start) {
  lane.core = start.core->fork();
  lane.begin = lane.watch.origin = lane.core->now();
  lane.watch.predecessor = start.predecessor;
  lane.watch.successor = start.successor;
  lane.facts[kSubmitted] = -1;
  lane.first = 0;
  std::copy(start.history.begin(), start.history.end(), lane.rows.begin());
  lane.first = -1;
  look(lane);
}

double Lanes::act(Lane& lane, int64_t action) {
  if (action == 1 && lane.facts[kMaySubmit]) {
    lane.core->drop_dependency(lane.watch.successor);
    lane.facts[kSubmitted] = lane.core->now();
  }
  do {
    lane.core->run_until(lane.core->now() + task_.step);
    look(lane);
  } while (task_.skip_to_outcome && !lane.facts[kMaySubmit] && !lane.terminated && !lane.truncated);
  return lane.terminated || lane.truncated ? reward(lane) : 0.0;
}

// The window moves on by one row; the row is the new one.
float* Lanes::next_row(Lane& lane) const {
  if (lane.first == task_.history) {
    std::copy(lane.rows.begin() + static_cast<std::ptrdiff_t>(lane.first + 1) * kColumns, lane.rows.end(),
              lane.rows.begin());
    lane.first = -1;
  }
  lane.first++;
  return lane.rows.data() + static_cast<size_t>(lane.first + task_.history - 1) * kColumns;
}

void Lanes::look(Lane& lane) {
  const Core& core = *lane.core;
  Record predecessor = core.job(lane.watch.predecessor), successor = core.job(lane.watch.successor);
  Time now = core.now();
  int64_t* facts = lane.facts;
  auto known = [](Time time) { return time == kNone ? Time{-1} : time; };
  facts[kTime] = now;
  facts[kMaySubmit] = successor.state == State::kPending && successor.dependencies >= 0;
  facts[kPredecessorStart] = known(predecessor.start);
  facts[kPredecessorEnd] = known(predecessor.end);
  facts[kSuccessorStart] = known(successor.start);
  facts[kInterruption] = facts[kOverlap] = -1;
  if (predecessor.end != kNone && successor.start != kNone) {
    facts[kInterruption] = std::max<Time>(0, successor.start - predecessor.end);
    facts[kOverlap] = std::max<Time>(0, predecessor.end - successor.start);
  }
  lane.terminated = facts[kInterruption] >= 0;
  lane.truncated = !lane.terminated && now >= lane.begin + task_.horizon;

  sight_.queued.clear();
  sight_.running.clear();
  core.observe(lane.watch, sight_);
  float* row = next_row(lane);
  auto put = [&](int column, double value) { row[column] = static_cast<float>(value) * scale_[column]; };
  auto put_jobs = [&](int column, const JobColumns& jobs, Percentiles* percentiles) {
    put(column, static_cast<double>(jobs.nodes.size()));
    const double *nodes = percentiles[0].of(jobs.nodes), *since = percentiles[1].of(jobs.since),
                 *limit = percentiles[2].of(jobs.limit);
    auto present = static_cast<double>(now - lane.watch.origin);
    for (int i = 0; i < Percentiles::kCount; i++) {
      put(column + 1 + i, nodes[i]);
      // The longest time is that since the earliest moment.
      put(column + 6 + i, jobs.since.empty() ? 0.0 : present - since[Percentiles::kCount - 1 - i]);
      put(column + 11 + i, limit[i]);
    }
  };
  put_jobs(kQueued, sight_.queued, lane.queued);
  put_jobs(kRunning, sight_.running, lane.running);

  Time pair[6] = {};
  auto capped = [](Time limit) { return limit == kNone ? kLimitCap : std::min(limit, kLimitCap); };
  if (predecessor.eligible != kNone && predecessor.eligible <= now) {
    Time waited = now, elapsed = 0;
    if (predecessor.start != kNone) {
      waited = std::min(waited, predecessor.start);
      elapsed = (predecessor.end == kNone ? now : std::min(now, predecessor.end)) - predecessor.start;
    }
    if (predecessor.end != kNone) waited = std::min(waited, predecessor.end);
    pair[0] = predecessor.nodes;
    pair[1] = capped(predecessor.limit);
    pair[2] = std::max<Time>(0, waited - predecessor.eligible);
    pair[3] = std::max<Time>(0, elapsed);
    pair[4] = successor.nodes;
    pair[5] = capped(successor.limit);
  }
  for (int i = 0; i < 6; i++) put(kPair + i, static_cast<double>(pair[i]));
  put(kNodesAt, sight_.idle);
  put(kNodesAt + 1, sight_.up);
}

double Lanes::reward(const Lane& lane) const {
  int64_t interruption = lane.facts[kInterruption], overlap = lane.facts[kOverlap], now = lane.facts[kTime];
  if (interruption < 0) {
    interruption = lane.facts[kPredecessorEnd] >= 0 ? now - lane.facts[kPredecessorEnd] : 0;
    overlap = lane.facts[kSuccessorStart] >= 0 ? now - lane.facts[kSuccessorStart] : 0;
  }
  double cost = task_.interruption_weight * (static_cast<double>(interruption) / 3600) +
                task_.overlap_weight * (static_cast<double>(overlap) / 3600);
  return cost != 0 ? -cost : 0.0;
}

}  // namespace slurm_sim
