#include "fairshare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace slurm_sim {

void FairShare::begin(const Params& params, Time start) {
  on = params.weight_share > 0;
  period_ = params.calc_period;
  decay_ = params.decay;
  decay_of_period_ = std::pow(decay_, static_cast<double>(period_));
  calculated_ = start;
}

void FairShare::start(const Catalogue& catalogue, const Billed& run) {
  advance(run.since);
  if (persons_.size() <= static_cast<size_t>(run.person)) persons_.resize(run.person + 1);
  if (!persons_[run.person].active) activate(catalogue, run.person);
  runs_.push_back(run);
}

// What it used since the last calculation counts from the next one on.
void FairShare::stop(const Catalogue& catalogue, int32_t job, Time now) {
  calculate(catalogue, now);
  auto run = std::find_if(runs_.begin(), runs_.end(), [&](const Billed& each) { return each.job == job; });
  add(*run, now);
  runs_.erase(run);
}

// Does the calculations that were due until now.
void FairShare::advance(Time now) {
  for (; calculated_ + period_ <= now; stale = true) {
    for (int person : active_) persons_[person].usage *= decay_of_period_;
    for (const Billed& run : runs_) add(run, calculated_ + period_);
    calculated_ += period_;
  }
}

void FairShare::recalculate(const Catalogue& catalogue, Time now) {
  advance(now);
  if (!stale) return;
  stale = false;
  version++;
  persons_.resize(catalogue.persons.size());
  groups_.resize(catalogue.members.size());
  level_.resize(catalogue.members.size());
  used_.resize(catalogue.members.size());
  sum(catalogue, 0);
  left_ = shared_ = static_cast<int64_t>(persons_.size());
  rank(catalogue, 0, false);
}

void FairShare::add(const Billed& run, Time until) {
  Time ran = until - std::max(run.since, calculated_);
  double decay = ran == period_ ? decay_of_period_ : std::pow(decay_, static_cast<double>(ran));
  persons_[run.person].usage += static_cast<double>(ran) * decay * run.billing * run.usage_factor;
}

void FairShare::activate(const Catalogue& catalogue, int person) {
  persons_[person].active = true;
  active_.push_back(person);
  int index = catalogue.member_of_person[person];
  const Member& member = catalogue.members[index];
  size_t above = member.above;
  if (above >= groups_.size()) return;
  Group& group = groups_[above];
  const std::vector<int>& members = catalogue.members[above].members;
  bool seen = group.seen && index <= members[group.seen - 1];
  if (!seen || member.shares == 0) return;
  persons_[person].factor = group.idle_factor;  // until the next calculation
  group.idle--;
  group.counted.insert(std::lower_bound(group.counted.begin(), group.counted.end(), index), index);
  group.order.insert(group.order.begin(), index);
}

FairShare::Group& FairShare::group_of(const Catalogue& catalogue, int account) {
  Group& group = groups_[account];
  const std::vector<int>& members = catalogue.members[account].members;
  for (; group.seen < members.size(); group.seen++) {
    int index = members[group.seen];
    const Member& member = catalogue.members[index];
    group.shares += member.shares;
    if (member.person >= 0 && member.shares != 0 && !persons_[member.person].active) {
      group.idle++;
    } else {
      group.counted.push_back(index);
      group.order.push_back(index);
    }
  }
  return group;
}

double FairShare::sum(const Catalogue& catalogue, int account) {
  Group& group = group_of(catalogue, account);
  double total = 0.0;
  for (int index : group.counted) {
    const Member& member = catalogue.members[index];
    used_[index] = member.person >= 0 ? persons_[member.person].usage : sum(catalogue, index);
    total += used_[index];
  }
  for (int index : group.counted) {
    auto own = static_cast<double>(catalogue.members[index].shares);
    if (own == 0) {
      level_[index] = 0.0;
    } else if (used_[index] == 0.0) {
      level_[index] = std::numeric_limits<double>::infinity();
    } else {
      level_[index] = (own / static_cast<double>(group.shares)) / (used_[index] / total);
    }
  }
  return total;
}

void FairShare::rank(const Catalogue& catalogue, int account, bool tied_above) {
  Group& group = groups_[account];
  double people = static_cast<double>(persons_.size()), previous = 0;
  bool first = true;
  if (group.idle) {
    if (!tied_above) shared_ = left_;
    group.idle_factor = static_cast<double>(shared_) / people;
    left_ -= group.idle;
    previous = std::numeric_limits<double>::infinity();
    first = false;
  }
  for (int index : sorted(catalogue, group)) {
    bool tied = first ? tied_above : previous == level_[index];
    previous = level_[index];
    first = false;
    const Member& member = catalogue.members[index];
    if (member.person < 0) {
      rank(catalogue, index, tied);
      continue;
    }
    if (!tied) shared_ = left_;
    persons_[member.person].factor = static_cast<double>(shared_) / people;
    left_--;
  }
}

// The best served last, accounts after users of equal standing, then as they came. From one calculation to the next few
// change places, so each is moved to its place among those before it.
const std::vector<int>& FairShare::sorted(const Catalogue& catalogue, Group& group) {
  auto before = [&](int a, int b) {
    if (level_[a] != level_[b]) return level_[a] > level_[b];
    bool account_a = catalogue.members[a].person < 0, account_b = catalogue.members[b].person < 0;
    return account_a != account_b ? account_b : a < b;
  };
  auto begin = group.order.begin();
  for (size_t i = 1; i < group.order.size(); i++)
    if (before(begin[i], begin[i - 1]))
      std::rotate(std::upper_bound(begin, begin + i, begin[i], before), begin + i, begin + i + 1);
  return group.order;
}

}  // namespace slurm_sim
