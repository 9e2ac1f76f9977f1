// Which engine fits a cluster.
#include "core.hpp"

namespace slurm_sim {

using Make = std::unique_ptr<Core>(std::shared_ptr<const Config>, std::shared_ptr<const Trace>,
                                   std::shared_ptr<const Catalogue>, Time);
Make make_core_2, make_core_4, make_core_16, make_core_256;

std::unique_ptr<Core> make_core(std::shared_ptr<const Config> config, std::shared_ptr<const Trace> trace,
                                std::shared_ptr<const Catalogue> catalogue, Time start) {
  size_t words = (config->nodes.size() + 63) / 64;
  if (words > 256)
    throw Refusal(Refusal::kSimulation,
                  "the cluster has " + std::to_string(config->nodes.size()) + " nodes, and the simulator's core has room for 16384");
  Make* make = words <= 2    ? make_core_2
               : words <= 4  ? make_core_4
               : words <= 16 ? make_core_16
                             : make_core_256;
  return make(std::move(config), std::move(trace), std::move(catalogue), start);
}

}  // namespace slurm_sim
