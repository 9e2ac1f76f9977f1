// What Python sees of observe.hpp: mirage/provision/env/observation.py is its only user.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>

#include "core.hpp"
#include "observe.hpp"

namespace nb = nanobind;

namespace slurm_sim {
namespace {

template <class T, int DIMENSIONS>
using Array = nb::ndarray<T, nb::ndim<DIMENSIONS>, nb::c_contig, nb::device::cpu>;

Columns columns_of(const std::array<int, 5>& all) {
  Columns columns{all[0], all[1], all[2], all[3], all[4]};
  if (!columns.fit()) throw nb::value_error("columns must be how many, and where those of queued and running jobs, pair and nodes begin");
  return columns;
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

void bind_observe(nb::module_& m) { m.def("walk", &walk); }

}  // namespace slurm_sim
