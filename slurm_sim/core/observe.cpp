#include "observe.hpp"

#include "core.hpp"

namespace slurm_sim {

const double* Column::percentiles() {
  if (!stale_) return found_;
  stale_ = false;
  if (values_.empty()) {
    std::fill(found_, found_ + kCount, 0.0);
    return found_;
  }
  size_t last = values_.size() - 1;
  for (size_t i = 0; i < kCount; i++) {
    size_t low = i * last / 4, rest = i * last % 4;
    double from = values_[low], to = values_[std::min(low + 1, last)];
    found_[i] = from + (to - from) * (static_cast<double>(rest) / 4);
  }
  return found_;
}

namespace {

void pair_columns(const Record& predecessor, const Record& successor, Time now, Time* pair) {
  auto capped = [](Time limit) { return limit == kNone ? kLimitCap : std::min(limit, kLimitCap); };
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

}  // namespace

void Observer::look(const Core& core, const Record* predecessor, const Record* successor, float* row) {
  Time now = core.now();
  core.observe(watch, sight_);
  auto put = [&](int column, double value) { row[column] = static_cast<float>(value); };
  auto put_jobs = [&](int column, Sight::Group& jobs) {
    put(column, static_cast<double>(jobs.nodes.size()));
    const double *nodes = jobs.nodes.percentiles(), *since = jobs.since.percentiles(), *limit = jobs.limit.percentiles();
    auto present = static_cast<double>(now - watch.origin);
    for (int i = 0; i < Column::kCount; i++) {
      put(column + 1 + i, nodes[i]);
      // The longest time is that since the earliest moment.
      put(column + 6 + i, jobs.since.size() ? present - since[Column::kCount - 1 - i] : 0.0);
      put(column + 11 + i, limit[i]);
    }
  };
  put_jobs(columns.queued, sight_.queued);
  put_jobs(columns.running, sight_.running);

  Time pair[6] = {};
  if (predecessor && predecessor->eligible != kNone && predecessor->eligible <= now)
    pair_columns(*predecessor, *successor, now, pair);
  for (int i = 0; i < 6; i++) put(columns.pair + i, static_cast<double>(pair[i]));
  put(columns.nodes, sight_.idle);
  put(columns.nodes + 1, sight_.up);
}

void Observer::walk(Core& core, const int64_t* times, size_t count, float* rows) {
  watch.origin = core.now();
  bool pair = watch.predecessor > 0;
  Record predecessor, successor;
  for (size_t i = 0; i < count; i++) {
    core.run_until(times[i]);
    if (pair) {
      predecessor = core.job(watch.predecessor);
      successor = core.job(watch.successor);
    }
    look(core, pair ? &predecessor : nullptr, pair ? &successor : nullptr, rows + i * columns.count);
  }
}

}  // namespace slurm_sim
