// What jobs have in use, as limits and fair shares count it. It touches no job, node or time.
#pragma once
#include <utility>
#include <vector>

#include "fairshare.hpp"

namespace slurm_sim {

struct QosUse {
  int64_t used[kKinds] = {};
  int64_t submitted = 0;
};

class Usage {
 public:
  FairShare fairshare;

  // Which counter of a scope: the whole QOS's, a user's, an account's.
  static size_t counter_of(const Config& config, const Catalogue& catalogue, int qos, Scope scope, int person) {
    int whose = scope == kAll ? 0 : scope == kOfUser ? catalogue.persons[person].user : catalogue.account_of(person);
    return static_cast<size_t>(whose) * config.qos_count() + qos;
  }
  QosUse& of(const Config& config, const Catalogue& catalogue, int qos, Scope scope, int person) {
    size_t at = counter_of(config, catalogue, qos, scope, person);
    if (at >= qos_[scope].size()) qos_[scope].resize(at + config.qos_count() - qos);
    return qos_[scope][at];
  }
  int64_t used(Scope scope, size_t counter, int kind) const {
    return counter < qos_[scope].size() ? qos_[scope][counter].used[kind] : 0;
  }
  // By the jobs of a member of the catalogue and all below.
  int64_t used_below(int member, int kind) const {
    return static_cast<size_t>(member) < groups_.size() ? groups_[member][kind] : 0;
  }
  int64_t jobs_of(int person) const {
    return static_cast<size_t>(person) < jobs_of_person_.size() ? jobs_of_person_[person] : 0;
  }
  // A job of this person starts (sign 1) or ends (-1): what associations count.
  void count(const Config& config, const Catalogue& catalogue, int person, const Amounts& amounts, int sign);

  // Tasks of an array that run; `count_task`: one more, or one less.
  int64_t tasks_of(int32_t array) const;
  void count_task(int32_t array, int sign);

 private:
  std::vector<QosUse> qos_[kScopes];  // by user or account, and QOS
  std::vector<Amounts> groups_;       // by member of the catalogue
  std::vector<int64_t> jobs_of_person_;
  std::vector<std::pair<int32_t, int32_t>> tasks_;  // array and number, ascending
};

}  // namespace slurm_sim
