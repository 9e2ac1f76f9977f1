// Where and when a job could start: the planning half of sched/backfill, as in backfill.py.
#pragma once
#include <algorithm>
#include <vector>

#include "model.hpp"
#include "nodeset.hpp"

namespace slurm_sim {

template <int W>
struct Placement {
  Time start = kNone;  // kNone: there is none
  NodeSet<W> nodes;
};

// What a job needs to be placed.
template <int W>
struct Wish {
  NodeSet<W> usable, able;  // as in backfill.py
  int needed, request, reservation;
  Time limit, asked;  // asked: its whole limit
  NodeSet<W> preferred;
};

// What a running job has, and until when at most.
template <int W>
struct Held {
  Time end;
  NodeSet<W> nodes;
  int request;
  int32_t slot = -1;
};

// Tables by the number of nodes asked for go up to this; larger jobs are looked at one by one.
constexpr int kTable = 1024;

// For a table by nodes that falls with their number. `note`: for those up to `before`, but not up to `count`, the value is
// at least this; returns what is left. `spread`, at the end: what holds for more nodes holds for fewer.
inline int note(std::vector<Time>& table, int before, int count, Time value) {
  if (count >= before) return before;
  table[before] = std::max(table[before], value);
  return count;
}
inline void spread(std::vector<Time>& table) {
  Time most = 0;
  for (size_t n = table.size(); n-- > 1;) table[n] = most = std::max(most, table[n]);
}

// A plan as seen by jobs that may use the same nodes.
template <int W>
struct View {
  NodeSet<W> usable;
  std::vector<int32_t> counts;  // by step: how many of the nodes are unreserved
  std::vector<uint8_t> rises;   // by step: whether a node is unreserved that was not in the step before
  std::vector<Time> enough_until;  // limits up to which enough nodes are unreserved from now on
  uint64_t now_version = 0;
  int now_asked = 0;           // how often it was asked of this version of the plan
};

// The nodes that backfill's own reservations leave over, as steps in time; jobs that ran before are not in it.
// The steps are slurmctld's, record for record (`_add_reservation`): it merges one pair of equal neighbours at most.
template <int W>
class Plan {
 public:
  std::vector<Time> begins;  // of the steps; each ends where the next begins, the last at `end`
  std::vector<NodeSet<W>> nodes;
  Time end = 0, last_start = 0, resolution = 60;
  Time now = 0;
  uint64_t version = 0;       // of begins, nodes, now
  Time valid_until = kNever;  // before this, the same questions have the same answers
  int64_t records = 1;        // steps ever made, merged ones too: what bf_node_space_size limits
  bool moved = false;         // a try at a later time found an earlier one
  NodeSet<W> planned;         // nodes that jobs are expected to start on

  void begin(Time at, Time window, Time step, const NodeSet<W>& up) {
    resolution = step;
    now = at;
    begins.assign(1, floor(now));
    nodes.assign(1, up);
    last_start = now + window;
    end = floor(last_start);
    version++;
    valid_until = kNever;
    records = 1;
    moved = false;
    planned = NodeSet<W>::none();
    open_count_ = 0;
    view_count_ = 0;
  }
  // The plan goes on at a later time before `valid_until`: all that it answered still holds.
  void go_on(Time at, Time window) {
    version++;
    now = at;
    begins[0] = floor(now);
    last_start = now + window;
    end = floor(last_start);
  }
  // The view of these nodes; nullptr if there are too many.
  View<W>* view(const NodeSet<W>& usable) {
    for (int i = 0; i < view_count_; i++)
      if (views_[i].usable == usable) return &views_[i];
    if (view_count_ == kViews) return nullptr;
    View<W>& view = views_[view_count_++];
    view.usable = usable;
    view.now_version = 0;
    view.counts.resize(size());
    view.rises.resize(size());
    look(view, 0, size());
    return &view;
  }
  // The index of the first step after this one, up to `last`, in which a node is unreserved again; -1: none.
  int next_rise(const View<W>& view, int step, int last) const {
    for (int i = step + 1; i < size() && i <= last; i++)
      if (view.rises[i]) return i;
    return -1;
  }
  // The index of the last step that begins until then; -1: none. Halves without branches, which could not be predicted.
  int last_step(Time to) const {
    const Time* low = begins.data();
    for (size_t count = begins.size(); count > 1;) {
      size_t half = count / 2;
      low = low[half] <= to ? low + half : low;
      count -= half;
    }
    return static_cast<int>(low - begins.data()) - (*low > to);
  }
  // From a try at this start, in this step, on: the first with enough unreserved nodes in each step up to the job's end,
  // which `last` becomes. Where a step has too few, no start up to it is good, and the next one to be tried is the first
  // rise after it. `first`: it is the first try, from now on. Returns whether there is one.
  bool next_try(const View<W>& view, int needed, Time limit, Time& start, int& step, int& last, bool& first) {
    const Time* begin = begins.data();
    const int32_t* counts = view.counts.data();
    const uint8_t* rises = view.rises.data();
    const int steps = size();
    Time until = start + limit;
    for (int i = step;;) {
      while (i < steps && begin[i] <= until && counts[i] >= needed) i++;
      if (i >= steps || begin[i] > until) {
        last = i - 1;
        return true;
      }
      int tried = i;
      while (tried > step && !rises[tried]) tried--;
      bool from_now = tried == step;  // no rise between
      Time reach = from_now ? until : begin[tried] + limit;
      for (i++;; i++) {
        while (i < steps && !rises[i]) i++;
        if (i >= steps || (i >= 2 && begin[i - 2] > reach)) {
          if (from_now && first)
            if (int after = last_step(until) + 1; after < steps) note_change(begin[after] - limit);
          return false;
        }
        from_now = false;
        reach = begin[i] + limit;
        if (counts[i] >= needed) break;
      }
      first = false;
      step = i;
      start = begin[i];
      until = reach;
    }
  }
  // Answers change at this time, if it is yet to come.
  void note_change(Time time) {
    if (time > now && time < valid_until) valid_until = time;
  }
  // Answers change when the window's end, floored, comes to lie beyond this time.
  void note_window(Time time) { note_change(floor(time) + resolution - (last_start - now)); }
  Time floor(Time time) const { return time - time % resolution; }
  bool is_beyond(Time start) {
    if (start <= last_start) return false;
    note_change(start - (last_start - now));
    return true;
  }
  int size() const { return static_cast<int>(begins.size()); }
  Time step_end(int i) const { return i + 1 < size() ? begins[i + 1] : end; }

  // The index of the first step that ends after this time.
  int first_after(Time time) const {
    int i = std::max(0, last_step(time));
    while (i < size() && step_end(i) <= time) i++;
    return i;
  }
  // The nodes that are unreserved from now until then, and the index of the last step of this time.
  const NodeSet<W>& open_until(Time to, int& last) {
    last = last_step(to);
    return open_through(last);
  }
  // The same, to the begin of this step.
  const NodeSet<W>& open_through(int last) {
    if (open_count_ == 0) {
      first_ = first_after(now);
      open_.resize(std::max<size_t>(open_.size(), size()));
      open_[first_] = nodes[first_];
      open_count_ = first_ + 1;
    }
    if (open_count_ <= last) {
      open_.resize(std::max<size_t>(open_.size(), size()));
      for (; open_count_ <= last; open_count_++) open_[open_count_] = open_[open_count_ - 1] & nodes[open_count_];
    }
    return open_[last];
  }
  // As `unreserved`, from now on, and notes when the answer changes because time goes on.
  NodeSet<W> unreserved_now(const NodeSet<W>& wanted, Time limit, Time& later) {
    int last, count = size();
    NodeSet<W> left = wanted & open_until(now + limit, last);
    later = kNever;
    for (int i = first_; i < count - 1 && i <= last + 1; i++) {
      NodeSet<W> step = i <= last ? open_[i] : left & nodes[i];
      if (!(wanted & nodes[i + 1]).without(step).any()) continue;
      later = begins[i + 1];
      break;
    }
    note_end_moves(wanted, left, limit, last, later);
    return left;
  }
  // Notes the next step that will matter as the end of an answer of `unreserved_now` moves on.
  void note_end_moves(const NodeSet<W>& wanted, const NodeSet<W>& left, Time limit, int last, Time later) {
    int count = size();
    for (int i = last + 1; i < count; i++) {
      bool less = left.without(nodes[i]).any();
      bool other = later == kNever && i + 2 < count && (wanted & nodes[i + 2]).without(left & nodes[i + 1]).any();
      if (!less && !other && i < last + 8) continue;
      note_change(begins[i] - limit);
      break;
    }
  }
  int step_of_now() {
    if (open_count_ == 0) {
      int last;
      open_until(now, last);
    }
    return first_;
  }
  // Those of the nodes that are unreserved all the time; `later`: when to look again if they are not good enough. A
  // reservation that begins exactly at the end is in the way.
  NodeSet<W> unreserved(const NodeSet<W>& wanted, Time from, Time to, Time& later) const {
    NodeSet<W> left = wanted;
    later = kNever;
    int count = size();
    for (int i = first_after(from); i < count; i++) {
      NodeSet<W> step = left & nodes[i];
      if (later == kNever && i + 1 < count && (wanted & nodes[i + 1]).without(step).any()) later = begins[i + 1];
      if (begins[i] > to) break;
      left = step;
    }
    return left;
  }
  bool overlaps(const NodeSet<W>& placed, Time start, Time until) {
    until = floor(until);
    if (end <= floor(start)) note_window(start);
    for (int i = first_after(floor(start)); i < size() && begins[i] < until; i++)
      if (placed.without(nodes[i]).any()) return true;
    return false;
  }
  // When the first of these nodes is kept for another job; kNever: not before this time.
  Time first_conflict(const NodeSet<W>& placed, Time until) const {
    for (int i = 0; i < size() && begins[i] < until; i++)
      if (placed.without(nodes[i]).any()) return begins[i];
    return kNever;
  }
  // Takes the nodes out, for at least one step of the resolution.
  void reserve(Time from, Time to, const NodeSet<W>& taken) {
    version++;
    note_change(floor(from) > begins[0] ? floor(from) : begins[0] + resolution);
    from = std::max(floor(from), begins[0]);
    to = std::max(floor(to), from + resolution);
    note_change(to);
    if (to >= end) note_window(to);
    if (from >= end) note_window(from);
    auto [before, first] = split(from);
    open_count_ = open_count_ && before > first_ ? std::min(open_count_, before + 1) : 0;
    int after = size();
    for (int i = first; i < size(); i++) {
      if (to < step_end(i)) insert(i + 1, to);
      nodes[i] = nodes[i].without(taken);
      if (to == step_end(i)) {
        after = i + 1;
        break;
      }
    }
    for (int v = 0; v < view_count_; v++) look(views_[v], first, std::min(after + 1, size()));
    for (int i = before; i < std::min(after, size() - 1); i++) {
      if (!(nodes[i] == nodes[i + 1])) continue;
      begins.erase(begins.begin() + i + 1);
      nodes.erase(nodes.begin() + i + 1);
      for (int v = 0; v < view_count_; v++) {
        views_[v].counts.erase(views_[v].counts.begin() + i + 1);
        views_[v].rises.erase(views_[v].rises.begin() + i + 1);
      }
      return;
    }
  }

 private:
  std::vector<NodeSet<W>> open_;  // by step: unreserved from now until its begin
  int open_count_ = 0, first_ = 0;  // how many of them are up to date, and the step of now

  // The index of the step before the first that begins here, and of this one, made if needed. The very first step is
  // split even if it begins here: that leaves one of no length.
  std::pair<int, int> split(Time time) {
    int i = std::max(0, last_step(time - 1));
    if (step_end(i) < time) return {size() - 1, size()};
    if (step_end(i) > time) insert(i + 1, time);
    return {std::max(0, i - 1), i + 1};
  }
  void insert(int i, Time time) {
    begins.insert(begins.begin() + i, time);
    NodeSet<W> before = nodes[i - 1];
    nodes.insert(nodes.begin() + i, before);
    records++;
    for (int v = 0; v < view_count_; v++) {
      int32_t count = views_[v].counts[i - 1];
      views_[v].counts.insert(views_[v].counts.begin() + i, count);
      views_[v].rises.insert(views_[v].rises.begin() + i, 0);
    }
  }
  void look(View<W>& view, int first, int last) {
    for (int i = first; i < last; i++) {
      NodeSet<W> seen = view.usable & nodes[i];
      view.counts[i] = seen.count();
      view.rises[i] = i > 0 && seen.without(nodes[i - 1]).any();
    }
  }

  static constexpr int kViews = 8;
  View<W> views_[kViews];
  int view_count_ = 0;
};

}  // namespace slurm_sim
