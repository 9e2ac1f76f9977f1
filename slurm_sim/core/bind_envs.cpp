// What Python sees of vector_env.hpp: mirage/provision/env/vector.py is its only user.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>

#include "vector_env.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace slurm_sim {
namespace {

template <class T, int DIMENSIONS>
using Array = nb::ndarray<T, nb::ndim<DIMENSIONS>, nb::c_contig, nb::device::cpu>;

void check_free(const Lanes& lanes) {
  if (lanes.busy) throw Refusal(Refusal::kSimulation, "these environments are stepping in another thread");
}

Columns columns_of(const std::array<int, 5>& all) {
  Columns columns{all[0], all[1], all[2], all[3], all[4]};
  if (!columns.fit()) throw nb::value_error("columns must be how many, and where those of queued and running jobs, pair and nodes begin");
  return columns;
}

void make(Lanes* self, int count, int history, Time step, Time horizon, double interruption_weight,
          double overlap_weight, bool skip_to_outcome, std::array<int, 5> columns, std::vector<uint64_t> nodes, std::vector<uint8_t> partitions,
          std::vector<float> scale) {
  EnvTask task{history, step, horizon, interruption_weight, overlap_weight, skip_to_outcome};
  new (self) Lanes(count, task, columns_of(columns), std::move(nodes), std::move(partitions), std::move(scale));
}

void add_start(Lanes& lanes, Core& core, int64_t predecessor, int64_t successor, Array<const float, 2> history) {
  check_free(lanes);
  if (core.busy) throw Refusal(Refusal::kSimulation, "this simulation is running in another thread");
  if (history.shape(0) != static_cast<size_t>(lanes.history() - 1) || history.shape(1) != static_cast<size_t>(lanes.columns()))
    throw nb::value_error("history must be (task.history - 1, columns)");
  std::vector<float> rows(history.data(), history.data() + history.size());
  lanes.add_start(core, predecessor, successor, std::move(rows));
}

void step(Lanes& lanes, Array<const int64_t, 1> actions, Array<const int64_t, 1> starts, Array<float, 3> observations,
          Array<double, 1> rewards, Array<bool, 1> terminated, Array<bool, 1> truncated, Array<int64_t, 2> facts) {
  auto count = static_cast<size_t>(lanes.size());
  bool fits = actions.shape(0) == count && starts.shape(0) == count && rewards.shape(0) == count &&
              terminated.shape(0) == count && truncated.shape(0) == count && facts.shape(0) == count &&
              facts.shape(1) == kFacts && observations.shape(0) == count &&
              observations.shape(1) == static_cast<size_t>(lanes.history()) &&
              observations.shape(2) == static_cast<size_t>(lanes.columns());
  if (!fits) throw nb::value_error("the arrays don't have the shapes of Buffers.of(num_envs, task)");
  for (size_t i = 0; i < count; i++)
    if (starts.data()[i] < -1 || starts.data()[i] >= lanes.start_count())
      throw nb::index_error("no start has this number");
  StepOut out{observations.data(), rewards.data(), terminated.data(), truncated.data(), facts.data()};
  check_free(lanes);
  struct Busy {
    Lanes& lanes;
    explicit Busy(Lanes& all) : lanes(all) { lanes.busy = true; }
    ~Busy() { lanes.busy = false; }
  } busy(lanes);
  nb::gil_scoped_release unlocked;
  lanes.step(actions.data(), starts.data(), out);
}

// Rows of a walk; job ids 0: there is no pair yet.
void walk(Core& core, std::vector<uint64_t> nodes, std::vector<uint8_t> partitions, int64_t predecessor,
          int64_t successor, std::array<int, 5> columns, Array<const int64_t, 1> times, Array<float, 2> rows) {
  if (core.busy) throw Refusal(Refusal::kSimulation, "this simulation is running in another thread");
  if (rows.shape(0) != times.shape(0) || rows.shape(1) != static_cast<size_t>(columns[0]))
    throw nb::value_error("rows must be (times, columns)");
  Observer observer;
  observer.columns = columns_of(columns);
  observer.watch = {std::move(nodes), std::move(partitions), predecessor, successor};
  core.busy = true;
  try {
    nb::gil_scoped_release unlocked;
    observer.walk(core, times.data(), times.shape(0), rows.data());
  } catch (...) {
    core.busy = false;
    throw;
  }
  core.busy = false;
}

}  // namespace

void bind_envs(nb::module_& m) {
  m.def("walk", &walk);
  nb::class_<Lanes>(m, "Lanes")
      .def("__init__", &make)
      .def("add_start", &add_start)
      .def("step", &step);
}

}  // namespace slurm_sim
