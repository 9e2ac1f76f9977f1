// Fair Tree, as in fairshare.py: the same operations on doubles in the same order.
#pragma once
#include <algorithm>
#include <limits>
#include <vector>

#include "model.hpp"

namespace slurm_sim {

// What one person used.
struct Usage {
  double usage = 0, factor = 1;
  int64_t cpus = 0;   // held now
  Time since = 0;
  int64_t fresh = 0;  // CPU-seconds since the last calculation, up to `since`
};

class FairShare {
 public:
  bool on = false;  // otherwise nobody asks
  bool stale = true;
  int64_t version = 0;  // of the factors

  void begin(const Params& params, Time start) {
    on = params.weight_share > 0;
    period_ = params.calc_period;
    decay_ = params.decay;
    calculated_ = start;
  }
  void count(size_t person, int64_t cpus, Time now) {
    if (!on) return;
    advance(now);
    grow(person + 1);
    Usage& use = persons_[person];
    use.fresh += use.cpus * (now - use.since);
    use.cpus += cpus;
    use.since = now;
  }
  // Does the calculations that were due until now.
  void advance(Time now) {
    for (; calculated_ + period_ <= now; stale = true) {
      calculated_ += period_;
      for (Usage& use : persons_) {
        use.fresh += use.cpus * (calculated_ - use.since);
        use.usage = use.usage * decay_ + static_cast<double>(use.fresh);
        use.fresh = 0;
        use.since = calculated_;
      }
    }
  }
  double factor(const Catalogue& catalogue, size_t person, Time now) {
    advance(now);
    if (stale) {
      stale = false;
      version++;
      grow(catalogue.persons.size());
      level_.assign(catalogue.members.size(), 0.0);
      sum(catalogue, 0);
      left_ = shared_ = static_cast<int64_t>(persons_.size());
      rank(catalogue, 0, false);
    }
    return persons_[person].factor;
  }

 private:
  void grow(size_t size) {
    if (persons_.size() < size) persons_.resize(size);
  }
  double sum(const Catalogue& catalogue, int account) {
    const Member& self = catalogue.members[account];
    std::vector<double> used;
    used.reserve(self.members.size());
    double total = 0.0;
    int64_t shares = 0;
    for (int index : self.members) {
      const Member& member = catalogue.members[index];
      used.push_back(member.person >= 0 ? persons_[member.person].usage : sum(catalogue, index));
      total += used.back();
      shares += member.shares;
    }
    for (size_t i = 0; i < used.size(); i++) {
      double own = static_cast<double>(catalogue.members[self.members[i]].shares);
      double& level = level_[self.members[i]];
      if (own == 0) {
        level = 0.0;
      } else if (used[i] == 0.0) {
        level = std::numeric_limits<double>::infinity();
      } else {
        level = (own / static_cast<double>(shares)) / (used[i] / total);
      }
    }
    return total;
  }
  void rank(const Catalogue& catalogue, int account, bool tied_above) {
    const std::vector<int>& order = sorted(catalogue, account);
    for (size_t i = 0; i < order.size(); i++) {
      bool tied = i == 0 ? tied_above : level_[order[i - 1]] == level_[order[i]];
      if (catalogue.members[order[i]].person < 0) {
        rank(catalogue, order[i], tied);
        continue;
      }
      if (!tied) shared_ = left_;
      persons_[catalogue.members[order[i]].person].factor =
          static_cast<double>(shared_) / static_cast<double>(persons_.size());
      left_--;
    }
  }

  // Its members, the best served last, accounts after users of equal standing, then as they came. From one calculation to
  // the next few change places, so each is moved to its place among those before it.
  const std::vector<int>& sorted(const Catalogue& catalogue, int account) {
    if (orders_.size() < catalogue.members.size()) orders_.resize(catalogue.members.size());
    const std::vector<int>& members = catalogue.members[account].members;
    std::vector<int>& order = orders_[account];
    for (size_t i = order.size(); i < members.size(); i++) order.push_back(members[i]);
    auto before = [&](int a, int b) {
      if (level_[a] != level_[b]) return level_[a] > level_[b];
      bool account_a = catalogue.members[a].person < 0, account_b = catalogue.members[b].person < 0;
      return account_a != account_b ? account_b : a < b;
    };
    for (size_t i = 1; i < order.size(); i++) {
      if (!before(order[i], order[i - 1])) continue;
      auto place = std::upper_bound(order.begin(), order.begin() + i, order[i], before);
      std::rotate(place, order.begin() + i, order.begin() + i + 1);
    }
    return order;
  }

  std::vector<Usage> persons_;
  std::vector<std::vector<int>> orders_;  // by member: an account's, as last sorted
  std::vector<double> level_;
  double decay_ = 1;
  Time period_ = 300, calculated_ = 0;
  int64_t left_ = 0, shared_ = 0;
};

}  // namespace slurm_sim
