// What an observation of the queue is made of; mirage/provision/env/observation.py says what it means.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "model.hpp"

namespace slurm_sim {

constexpr Time kLimitCap = 30 * Time{86400};

// The pool that is looked at, and the pair of jobs that is left out.
struct Watch {
  std::vector<uint64_t> nodes;      // a set of nodes
  std::vector<uint8_t> partitions;  // by partition: whether it belongs to the pool
  int64_t predecessor = 0, successor = 0;
  Time origin = 0;

  bool counts(int partition, int64_t job_id) const {
    return partitions[partition] && job_id != predecessor && job_id != successor;
  }
};

// One number of each job of a group, in order. Jobs seldom change between two looks, so they are put in and taken out.
class Column {
 public:
  static constexpr int kCount = 5;

  void clear() { change().clear(); }
  void append(int32_t value) { change().push_back(value); }  // `sort` must follow
  void sort() { std::sort(values_.begin(), values_.end()); }
  void put(int32_t value) { change().insert(std::upper_bound(values_.begin(), values_.end(), value), value); }
  void take(int32_t value) { change().erase(std::lower_bound(values_.begin(), values_.end(), value)); }
  size_t size() const { return values_.size(); }
  // 0, 25, 50, 75 and 100 %, as numpy.percentile has them, linear; of nothing, 0.
  const double* percentiles();

 private:
  std::vector<int32_t>& change() {
    stale_ = true;
    return values_;
  }

  std::vector<int32_t> values_;
  bool stale_ = true;
  double found_[kCount] = {};
};

enum class Role : uint8_t { kNot, kQueued, kRunning };

// What an observer knows of the pool's jobs.
class Sight {
 public:
  struct Group {
    Column nodes, since, limit;  // since: eligible or started, from the watch's origin
  };
  Group queued, running;
  int64_t look = -1;             // the simulation's last look, if this has seen it; -1: nothing is known
  int idle = 0, up = 0;

  void forget() {
    std::fill(known_.begin(), known_.end(), Known{});
    for (Column* column : columns()) column->clear();
  }
  // The job in this slot; `anew`: after `forget`, and `sort` follows.
  void see(int32_t slot, Role as, int32_t nodes, int32_t since, Time limit, bool anew) {
    if (static_cast<size_t>(slot) >= known_.size()) known_.resize(slot + 1);
    Known& known = known_[slot];
    Known now{as, nodes, since, static_cast<int32_t>(limit == kNone ? kLimitCap : std::min(limit, kLimitCap))};
    if (now == known || (as == Role::kNot && known.as == Role::kNot)) return;
    if (known.as != Role::kNot) tell(known, &Column::take);
    if (as != Role::kNot) tell(now, anew ? &Column::append : &Column::put);
    known = now;
  }
  void sort() {
    for (Column* column : columns()) column->sort();
  }

 private:
  struct Known {
    Role as = Role::kNot;
    int32_t nodes = 0, since = 0, limit = 0;
    bool operator==(const Known&) const = default;
  };
  std::array<Column*, 6> columns() {
    return {&queued.nodes, &queued.since, &queued.limit, &running.nodes, &running.since, &running.limit};
  }
  void tell(const Known& job, void (Column::*what)(int32_t)) {
    Group& group = job.as == Role::kQueued ? queued : running;
    (group.nodes.*what)(job.nodes);
    (group.since.*what)(job.since);
    (group.limit.*what)(job.limit);
  }

  std::vector<Known> known_;     // by slot
};

class Core;
struct Record;

// The columns of a row, as the caller's table has them: how many, and where each group begins. Groups: of queued and of
// running jobs the count, then five percentiles each of nodes, seconds and limits; six of the pair; nodes idle and up.
struct Columns {
  static constexpr int kOfJobs = 1 + 3 * 5, kOfPair = 6, kOfNodes = 2;
  int count, queued, running, pair, nodes;
  bool fit() const {
    auto inside = [this](int first, int size) { return first >= 0 && first <= count - size; };
    return inside(queued, kOfJobs) && inside(running, kOfJobs) && inside(pair, kOfPair) && inside(nodes, kOfNodes);
  }
};

// Writes rows of these columns, of one simulation as time goes on.
class Observer {
 public:
  Watch watch;
  Columns columns;
  // Runs the simulation to each of these times, and writes a row there. Job ids 0: no pair yet.
  void walk(Core& core, const int64_t* times, size_t count, float* rows);

 private:
  // The pair null: there is none yet.
  void look(const Core& core, const Record* predecessor, const Record* successor, float* row);

  Sight sight_;
};

}  // namespace slurm_sim
