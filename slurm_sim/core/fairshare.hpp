// Fair Tree, as in fairshare.py: the same operations on doubles in the same order.
#pragma once
#include <vector>

#include "model.hpp"

namespace slurm_sim {

// What one person used.
struct Share {
  double usage = 0, factor = 1;
  bool active = false;  // has had a job; all others of an account stand alike, so one number serves them
};

// A job that runs, or is suspended.
struct Billed {
  int32_t job, person;
  Time since;
  double billing, usage_factor;
};

class FairShare {
 public:
  bool on = false;  // otherwise nobody asks
  bool stale = true;
  int64_t version = 0;  // of the factors

  void begin(const Params& params, Time start);
  void start(const Catalogue& catalogue, const Billed& run);
  void stop(const Catalogue& catalogue, int32_t job, Time now);
  void advance(Time now);
  double factor(const Catalogue& catalogue, int person, Time now) {
    calculate(catalogue, now);
    const Member& member = catalogue.members[catalogue.member_of_person[person]];
    bool idle = !persons_[person].active && member.shares != 0;
    return idle ? groups_[member.above].idle_factor : persons_[person].factor;
  }

 private:
  void calculate(const Catalogue& catalogue, Time now) {
    if (stale || calculated_ + period_ <= now) recalculate(catalogue, now);
  }
  void recalculate(const Catalogue& catalogue, Time now);
  void add(const Billed& run, Time until);
  // Members of an account. Idle: persons with shares who never had a job.
  struct Group {
    std::vector<int> counted, order;  // all but the idle: as they came, and as last sorted
    size_t seen = 0;                  // so many of the members are in here
    int64_t shares = 0, idle = 0;
    double idle_factor = 1;
  };
  void activate(const Catalogue& catalogue, int person);
  Group& group_of(const Catalogue& catalogue, int account);
  double sum(const Catalogue& catalogue, int account);
  void rank(const Catalogue& catalogue, int account, bool tied_above);
  const std::vector<int>& sorted(const Catalogue& catalogue, Group& group);

  std::vector<Share> persons_;
  std::vector<Billed> runs_;
  std::vector<int> active_;
  std::vector<Group> groups_;          // by member: an account's
  std::vector<double> level_, used_;   // by member
  double decay_ = 1, decay_of_period_ = 1;
  Time period_ = 300, calculated_ = 0;
  int64_t left_ = 0, shared_ = 0;
};

}  // namespace slurm_sim
