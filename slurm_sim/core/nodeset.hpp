// Sets of nodes as bits, the first node the lowest bit, and which nodes Slurm picks from a set.
#pragma once
#include <bit>
#include <cstdint>

// All that a function calls is inlined, but what is marked as apart; not with AddressSanitizer, whose checks would then
// take minutes to compile.
#ifdef __SANITIZE_ADDRESS__
#define SLURM_SIM_FLATTEN
#else
#define SLURM_SIM_FLATTEN [[gnu::flatten]]
#endif
// Compiled once for each width and not into each of its callers, as the widths take most of an installation's time.
#define SLURM_SIM_APART [[gnu::noinline]]

namespace slurm_sim {

// W words of 64 nodes. A trivial type: states that hold it are copied as bytes.
template <int W>
struct NodeSet {
  uint64_t word[W];

  static NodeSet none() { return NodeSet{}; }
  bool has(int node) const { return word[node >> 6] >> (node & 63) & 1; }
  void add(int node) { word[node >> 6] |= uint64_t{1} << (node & 63); }
  void remove(int node) { word[node >> 6] &= ~(uint64_t{1} << (node & 63)); }
  int count() const {
    int total = 0;
    for (int i = 0; i < W; i++) total += std::popcount(word[i]);
    return total;
  }
  bool any() const {
    uint64_t all = 0;
    for (int i = 0; i < W; i++) all |= word[i];
    return all != 0;
  }
  NodeSet operator&(const NodeSet& o) const {
    NodeSet r;
    for (int i = 0; i < W; i++) r.word[i] = word[i] & o.word[i];
    return r;
  }
  NodeSet operator|(const NodeSet& o) const {
    NodeSet r;
    for (int i = 0; i < W; i++) r.word[i] = word[i] | o.word[i];
    return r;
  }
  NodeSet without(const NodeSet& o) const {
    NodeSet r;
    for (int i = 0; i < W; i++) r.word[i] = word[i] & ~o.word[i];
    return r;
  }
  bool operator==(const NodeSet&) const = default;
};

// A run of consecutive nodes.
struct Range {
  int32_t first, length;
};

// Calls f(first, length) for each run, lowest first.
template <int W, class F>
[[gnu::always_inline]] inline void for_each_run(const NodeSet<W>& set, F f) {
  int first = -1;  // of a run that reached the end of the word before
  for (int i = 0; i < W; i++) {
    uint64_t bits = set.word[i];
    int at = 0;
    if (first >= 0) {
      at = std::countr_one(bits);
      if (at == 64) continue;
      f(first, 64 * i + at - first);
      first = -1;
      bits &= ~uint64_t{0} << at;
    }
    while (bits) {
      at = std::countr_zero(bits);
      int length = std::countr_one(bits >> at);
      if (at + length == 64) {
        first = 64 * i + at;
        break;
      }
      f(64 * i + at, length);
      bits &= ~uint64_t{0} << (at + length);
    }
  }
  if (first >= 0) f(first, 64 * W - first);
}

template <int W>
void add_range(NodeSet<W>& set, int first, int length) {
  while (length > 0) {
    int at = first & 63, here = length < 64 - at ? length : 64 - at;
    set.word[first >> 6] |= (here == 64 ? ~uint64_t{0} : (uint64_t{1} << here) - 1) << at;
    first += here;
    length -= here;
  }
}

// Of the runs of these nodes, compared by their CPUs, one after the other: one that is too short but has more replaces one
// that is long enough.
template <int W, class Cpus>
Range best_run(const NodeSet<W>& free, int count, const Cpus& cpus) {
  Range best{0, 0};
  int64_t best_cpus = 0;
  bool best_enough = false;
  for_each_run(free, [&](int first, int length) {
    int64_t has = 0;
    for (int i = first; i < first + length; i++) has += cpus[i];
    bool enough = length >= count;
    bool better = enough ? !best_enough || has < best_cpus : has > best_cpus;
    if (best.length == 0 || better) best = {first, length}, best_cpus = has, best_enough = enough;
  });
  return best;
}

// select/linear (`_job_test` in its source): the shortest run that holds the whole rest, else the longest run and go
// on; of equals the first; within a run the lowest nodes. `free` must hold at least `count`.
template <int W>
NodeSet<W> pick_nodes(const NodeSet<W>& free, int count) {
  if (free.count() == count) return free;
  Range runs[32 * W];
  int found = 0, shortest = -1, longest = 0;
  for_each_run(free, [&](int first, int length) {
    if (length >= count && (shortest < 0 || length < runs[shortest].length)) shortest = found;
    if (found == 0 || length > runs[longest].length) longest = found;
    runs[found++] = {first, length};
  });
  auto picked = NodeSet<W>::none();
  while (shortest < 0) {
    add_range(picked, runs[longest].first, runs[longest].length);
    count -= runs[longest].length;
    runs[longest].length = 0;
    longest = 0;
    for (int i = 0; i < found; i++) {
      if (runs[i].length >= count && (shortest < 0 || runs[i].length < runs[shortest].length)) shortest = i;
      if (runs[i].length > runs[longest].length) longest = i;
    }
    if (count == 0) return picked;
  }
  add_range(picked, runs[shortest].first, count);
  return picked;
}

// The same where nodes differ in their CPUs: runs are compared by these.
template <int W, class Cpus>
NodeSet<W> pick_by_cpus(NodeSet<W> free, int count, const Cpus& cpus) {
  auto picked = NodeSet<W>::none();
  while (count > 0) {
    Range best = best_run(free, count, cpus);
    int length = best.length < count ? best.length : count;
    auto block = NodeSet<W>::none();
    add_range(block, best.first, length);
    picked = picked | block;
    free = free.without(block);
    count -= length;
  }
  return picked;
}

// The first of these nodes, at most so many.
template <int W>
NodeSet<W> first_nodes(const NodeSet<W>& nodes, int count) {
  auto picked = NodeSet<W>::none();
  for_each_run(nodes, [&](int first, int length) {
    add_range(picked, first, std::min(length, count));
    count -= std::min(length, count);
  });
  return picked;
}

// The same number for each node.
struct Same {
  int64_t value;
  int64_t operator[](int) const { return value; }
};

// select/cons_tres (`_eval_nodes`): as pick_by_cpus, by free CPUs. The last node is the one of its run with the fewest. One
// step: picks some of the nodes, at least one, at most `count`.
template <int W, class Cpus>
NodeSet<W> pick_sharing(const NodeSet<W>& free, int count, const Cpus& cpus) {
  Range best = best_run(free, count, cpus);
  auto picked = NodeSet<W>::none();
  if (count == 1) {
    int fewest = best.first;
    for (int i = best.first; i < best.first + best.length; i++)
      if (cpus[i] < cpus[fewest]) fewest = i;
    picked.add(fewest);
  } else {
    add_range(picked, best.first, best.length < count ? best.length : count);
  }
  return picked;
}

}  // namespace slurm_sim
