// What later passes may leave out, because the last ones changed nothing. It holds no rule of Slurm: without it (Core::thorough)
// all starts are the same, only slower. Whatever changes what passes depend on must say so here.
#pragma once
#include <vector>

#include "model.hpp"
#include "nodeset.hpp"

namespace slurm_sim {

// What attempts and tests of jobs leave on nodes, as nodes.Picker has it.
template <int W>
struct Traces {
  std::vector<NodeSet<W>> near;  // by GPUs that the last test of a job with GPUs counted there
  NodeSet<W> heavier = NodeSet<W>::none();
  bool operator==(const Traces&) const = default;
};

// A backfill pass that started nothing: with the same traces before it, it leaves the same ones until then.
template <int W>
struct IdlePass {
  Traces<W> before, after;
  size_t queued;
  Time until;
  bool moved, planned;
};

template <int W>
struct Skips {
  bool main_quiet = false;        // main passes would start nothing and change no reason
  int64_t main_passes_over = kNever;  // and would pass this job over, the first in the order in which they count
  Time quiet_until = kNone;       // before this, backfill passes would start nothing and change no reason,
  size_t quiet_places = 0;        // whatever the order of the jobs from this place in the queue on
  bool limits_noted = false;      // no competing job has reached a limit that is not its reason
  std::vector<int32_t> unseen;    // jobs that have come into the queue since
  uint64_t plan = 0;              // the scratch's plan that holds all the time; 0: none
  std::vector<IdlePass<W>> passes;  // since the last disturbance

  // What passes depend on has changed, other than by jobs at the queue's end.
  void disturb(bool thorough) {
    main_quiet = false;
    quiet_until = kNone;
    unseen.clear();
    limits_noted = limits_noted && !thorough;
    plan = 0;
    passes.clear();
  }
  // The queue has another order from this place on, or a new job there. Backfill passes that did not get so far stay as they are.
  void reordered(size_t place, bool thorough) {
    if (quiet_until == kNone || place < quiet_places) return disturb(thorough);
    main_quiet = false;
    plan = 0;
  }
  // The last backfill pass started nothing, with this plan: until then, and for the order of the jobs before that place.
  void keep_plan(uint64_t id, Time until, size_t places) {
    quiet_until = until;
    quiet_places = places;
    unseen.clear();
    plan = id;
  }
  void keep_pass(IdlePass<W> pass) {
    constexpr size_t kMost = 4;
    if (passes.size() == kMost) passes.erase(passes.begin());
    passes.push_back(std::move(pass));
  }
};

}  // namespace slurm_sim
