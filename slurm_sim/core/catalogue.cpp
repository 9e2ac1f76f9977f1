// What jobs ask for and who submits them, each kept once: the same for engines of all widths.
#include "model.hpp"

namespace slurm_sim {

Catalogue::Catalogue() = default;
Catalogue::Catalogue(const Catalogue&) = default;
Catalogue::~Catalogue() = default;

int Catalogue::request(const Request& wanted) {
  for (size_t i = 0; i < requests.size(); i++)
    if (requests[i] == wanted) return static_cast<int>(i);
  requests.push_back(wanted);
  gpus_differ = gpus_differ || !requests[0].gpus != !wanted.gpus;
  any_whole = any_whole || wanted.whole;
  return static_cast<int>(requests.size()) - 1;
}

int Catalogue::find_shape(Shape wanted, const Request& request) const {
  auto found = std::find(requests.begin(), requests.end(), request);
  if (found == requests.end()) return -1;
  wanted.request = static_cast<int>(found - requests.begin());
  auto at = std::find(shapes.begin(), shapes.end(), wanted);
  return at == shapes.end() ? -1 : static_cast<int>(at - shapes.begin());
}

int Catalogue::shape(Shape wanted, const Request& asked) {
  if (int found = find_shape(wanted, asked); found >= 0) return found;
  wanted.request = request(asked);
  shapes.push_back(wanted);
  return static_cast<int>(shapes.size()) - 1;
}

int Catalogue::account(const std::string& name) {
  if (auto found = account_member.find(name); found != account_member.end()) return found->second;
  int index = static_cast<int>(members.size());
  account_member[name] = index;
  members.emplace_back().account = index;
  auto above = parents.find(name);
  int parent = account(above == parents.end() ? "root" : above->second);
  members[parent].members.push_back(index);
  members[index].above = parent;
  return index;
}

int Catalogue::find_person(const std::string& account, const std::string& user) const {
  auto found = person_index.find(key(account, user));
  return found == person_index.end() ? -1 : found->second;
}

int Catalogue::person(const std::string& account_name, const std::string& user) {
  if (int known = find_person(account_name, user); known >= 0) return known;
  auto [found, is_new] = user_index.try_emplace(user, static_cast<int>(users.size()));
  if (is_new) users.push_back(user);
  int index = static_cast<int>(persons.size());
  person_index[key(account_name, user)] = index;
  auto own = max_jobs.find(key(account_name, user));
  if (own == max_jobs.end()) own = max_jobs.find(account_name);
  persons.push_back({found->second, own == max_jobs.end() ? kNone : own->second});
  int member = static_cast<int>(members.size());
  members.emplace_back().person = index;
  member_of_person.push_back(member);
  int above = account(account_name);
  members[above].members.push_back(member);
  members[member].above = above;
  return index;
}

}  // namespace slurm_sim
