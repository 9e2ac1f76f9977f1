#include "observe.hpp"

#include "core.hpp"

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

void Observer::look(const Core& core, const Record* predecessor, const Record* successor, const float* scale,
                    float* row) {
  Time now = core.now();
  sight_.idle = sight_.up = 0;
  core.observe(watch, sight_);
  auto put = [&](int column, double value) { row[column] = static_cast<float>(value) * (scale ? scale[column] : 1.0f); };
  auto put_jobs = [&](int column, const JobColumns& jobs, Percentiles* percentiles) {
    put(column, static_cast<double>(jobs.nodes.size()));
    const double *nodes = percentiles[0].of(jobs.nodes), *since = percentiles[1].of(jobs.since),
                 *limit = percentiles[2].of(jobs.limit);
    auto present = static_cast<double>(now - watch.origin);
    for (int i = 0; i < Percentiles::kCount; i++) {
      put(column + 1 + i, nodes[i]);
      // The longest time is that since the earliest moment.
      put(column + 6 + i, jobs.since.empty() ? 0.0 : present - since[Percentiles::kCount - 1 - i]);
      put(column + 11 + i, limit[i]);
    }
  };
  put_jobs(kQueued, sight_.queued, queued_);
  put_jobs(kRunning, sight_.running, running_);

  Time pair[6] = {};
  if (predecessor && predecessor->eligible != kNone && predecessor->eligible <= now)
    pair_columns(*predecessor, *successor, now, pair);
  for (int i = 0; i < 6; i++) put(kPair + i, static_cast<double>(pair[i]));
  put(kNodesAt, sight_.idle);
  put(kNodesAt + 1, sight_.up);
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
    look(core, pair ? &predecessor : nullptr, pair ? &successor : nullptr, nullptr, rows + i * kColumns);
  }
}

}  // namespace slurm_sim
