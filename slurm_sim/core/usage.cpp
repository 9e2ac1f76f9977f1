#include "usage.hpp"

#include <algorithm>

namespace slurm_sim {

void Usage::count(const Config& config, const Catalogue& catalogue, int person, const Amounts& amounts, int sign) {
  if (config.any_group_limit) {
    if (groups_.size() < catalogue.members.size()) groups_.resize(catalogue.members.size());
    for (int kind = 0; kind < kKinds; kind++) {
      int64_t amount = sign * amounts[kind];
      catalogue.up_from(person, [&](int member) { return groups_[member][kind] += amount, false; });
    }
  }
  if (jobs_of_person_.size() < catalogue.persons.size()) jobs_of_person_.resize(catalogue.persons.size());
  jobs_of_person_[person] += sign;
}

int64_t Usage::tasks_of(int32_t array) const {
  auto at = std::lower_bound(tasks_.begin(), tasks_.end(), std::pair<int32_t, int32_t>{array, INT32_MIN});
  return at != tasks_.end() && at->first == array ? at->second : 0;
}

void Usage::count_task(int32_t array, int sign) {
  auto at = std::lower_bound(tasks_.begin(), tasks_.end(), std::pair<int32_t, int32_t>{array, INT32_MIN});
  if (at == tasks_.end() || at->first != array) at = tasks_.insert(at, {array, 0});
  at->second += sign;
}

}  // namespace slurm_sim
