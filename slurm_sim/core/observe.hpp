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
  int idle = 0, up = 0;
};

}  // namespace slurm_sim
