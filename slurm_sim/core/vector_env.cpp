#include "vector_env.hpp"

#include <cstring>

namespace slurm_sim {

Lanes::Lanes(int count, EnvTask task, Columns columns, std::vector<uint64_t> nodes, std::vector<uint8_t> partitions,
             std::vector<float> scale)
    : task_(task), columns_(columns), scale_(std::move(scale)), lanes_(count) {
  for (Lane& lane : lanes_) {
    lane.observer.watch.nodes = nodes;
    lane.observer.watch.partitions = partitions;
    lane.observer.columns = columns;
    lane.rows.resize(static_cast<size_t>(task_.history) * 2 * columns_.count);
  }
}

void Lanes::add_start(Core& core, int64_t predecessor, int64_t successor, std::vector<float> history) {
  starts_.push_back({core.fork(), predecessor, successor, std::move(history)});
}

void Lanes::step(const int64_t* actions, const int64_t* starts, const StepOut& out) {
  size_t width = static_cast<size_t>(task_.history) * columns_.count;
  for (size_t i = 0; i < lanes_.size(); i++) {
    Lane& lane = lanes_[i];
    out.rewards[i] = 0;
    if (starts[i] >= 0) begin(lane, starts_[starts[i]]);
    else out.rewards[i] = act(lane, actions[i]);
    std::memcpy(out.observations + i * width, lane.rows.data() + static_cast<size_t>(lane.first) * columns_.count,
                width * sizeof(float));
    out.terminated[i] = lane.terminated;
    out.truncated[i] = lane.truncated;
    std::copy(lane.facts, lane.facts + kFacts, out.facts + i * kFacts);
  }
}

void Lanes::begin(Lane& lane, const Start& start) {
  lane.core = start.core->fork();
  lane.begin = lane.observer.watch.origin = lane.core->now();
  lane.observer.watch.predecessor = start.predecessor;
  lane.observer.watch.successor = start.successor;
  lane.observer.forget();
  lane.facts[kSubmitted] = -1;
  lane.first = 0;
  std::copy(start.history.begin(), start.history.end(), lane.rows.begin());
  lane.first = -1;
  look(lane);
}

double Lanes::act(Lane& lane, int64_t action) {
  if (action == 1 && lane.facts[kMaySubmit]) {
    lane.core->drop_dependency(lane.observer.watch.successor);
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
    std::copy(lane.rows.begin() + static_cast<std::ptrdiff_t>(lane.first + 1) * columns_.count, lane.rows.end(),
              lane.rows.begin());
    lane.first = -1;
  }
  lane.first++;
  return lane.rows.data() + static_cast<size_t>(lane.first + task_.history - 1) * columns_.count;
}

void Lanes::look(Lane& lane) {
  const Core& core = *lane.core;
  Record predecessor = core.job(lane.observer.watch.predecessor), successor = core.job(lane.observer.watch.successor);
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

  lane.observer.look(core, &predecessor, &successor, scale_.data(), next_row(lane));
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
