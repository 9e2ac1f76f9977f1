// Episodes side by side: mirage/provision/env/episode.py in C++, for SubmitVectorEnv. The two agree exactly.
#pragma once
#include <memory>
#include <vector>

#include "core.hpp"
#include "observe.hpp"

namespace slurm_sim {

// Fields of envs.episode.Facts.
enum Fact { kTime, kMaySubmit, kSubmitted, kPredecessorStart, kPredecessorEnd, kSuccessorStart, kInterruption, kOverlap, kFacts };

struct EnvTask {
  int history;
  Time step, horizon;
  double interruption_weight, overlap_weight;
  bool skip_to_outcome;
};

// The arrays of envs.vector.Buffers, one environment after the other.
struct StepOut {
  float* observations;
  double* rewards;
  bool *terminated, *truncated;
  int64_t* facts;
};

class Lanes {
 public:
  bool busy = false;  // a step runs without the interpreter's lock; set and read with it
  Lanes(int count, EnvTask task, Columns columns, std::vector<uint64_t> nodes, std::vector<uint8_t> partitions, std::vector<float> scale);
  Lanes(const Lanes&) = delete;
  // `history`: the rows before the start, scaled, oldest first.
  void add_start(Core& core, int64_t predecessor, int64_t successor, std::vector<float> history);
  // Where `starts` has a start's number, a new episode begins; where it has -1, the old one takes its action.
  void step(const int64_t* actions, const int64_t* starts, const StepOut& out);
  int size() const { return static_cast<int>(lanes_.size()); }
  int history() const { return task_.history; }
  int columns() const { return columns_.count; }
  int start_count() const { return static_cast<int>(starts_.size()); }

 private:
  struct Start {
    std::unique_ptr<Core> core;
    int64_t predecessor, successor;
    std::vector<float> history;
  };
  struct Lane {
    std::unique_ptr<Core> core;
    Observer observer;
    Time begin = 0;
    int64_t facts[kFacts] = {};
    bool terminated = false, truncated = false;
    std::vector<float> rows;  // a window of `history` rows slides over them
    int first = 0;
  };

  void begin(Lane& lane, const Start& start);
  double act(Lane& lane, int64_t action);
  void look(Lane& lane);
  float* next_row(Lane& lane) const;
  double reward(const Lane& lane) const;

  EnvTask task_;
  Columns columns_;
  std::vector<float> scale_;
  std::vector<Start> starts_;
  std::vector<Lane> lanes_;
};

}  // namespace slurm_sim
