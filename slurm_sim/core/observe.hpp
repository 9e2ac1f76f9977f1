// What an observation of the queue is made of; slurm_sim/envs/observation.py says what it means.
#pragma once
#include <algorithm>
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
  Time origin = 0;                  // `JobColumns::since` counts from here

  bool counts(int partition, int64_t job_id) const {
    return partitions[partition] && job_id != predecessor && job_id != successor;
  }
};

struct JobColumns {
  std::vector<int32_t> nodes, since, limit;  // since: eligible or started

  void clear() {
    nodes.clear();
    since.clear();
    limit.clear();
  }
  void add(int32_t count, Time from, Time limit_s) {
    nodes.push_back(count);
    since.push_back(static_cast<int32_t>(from));
    limit.push_back(static_cast<int32_t>(limit_s == kNone ? kLimitCap : std::min(limit_s, kLimitCap)));
  }
};

struct Sight {
  JobColumns queued, running;
  int64_t queued_of = -1, running_of = -1;  // as of so many changes; they seldom change between two looks
  int idle = 0, up = 0;
};

// Percentiles of one column of jobs, as of the last look: jobs seldom change between two steps.
class Percentiles {
 public:
  static constexpr int kCount = 5;
  const double* of(const std::vector<int32_t>& values);

 private:
  bool adapt(const std::vector<int32_t>& values);

  std::vector<int32_t> values_, sorted_;
  double found_[kCount] = {};
};

class Core;
struct Record;
constexpr int kColumns = 40, kQueued = 0, kRunning = 16, kPair = 32, kNodesAt = 38;

// Writes rows of 40 columns, of one simulation as time goes on.
class Observer {
 public:
  Watch watch;
  // To be called when `watch` or the simulation becomes another.
  void forget() { sight_.queued_of = sight_.running_of = -1; }
  // The pair null: there is none yet. `scale`: factors of the columns; null: raw.
  void look(const Core& core, const Record* predecessor, const Record* successor, const float* scale, float* row);
  // Runs the simulation to each of these times, and writes a row there. Job ids 0: no pair yet.
  void walk(Core& core, const int64_t* times, size_t count, float* rows);

 private:
  Percentiles queued_[3], running_[3];
  Sight sight_;
};

}  // namespace slurm_sim
