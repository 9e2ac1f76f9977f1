// What Python sees: slurm_sim.core._core. The typed face of it is slurm_sim/simulator.py.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <ctime>
#include <numeric>

#include "core.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace slurm_sim {
namespace {

// Python's classes, set once by simulator.py.
struct Types {
  nb::object record, dependencies, dependency, no_dependencies;
  std::vector<nb::object> states, reasons, schedulers, kinds;
  nb::object errors[3];
};
Types& types() {
  static auto* all = new Types;  // never freed: Python may be gone by then
  return *all;
}

// Keeps a Python object, wherever it ends.
std::shared_ptr<const void> keep(nb::object object) {
  return {new nb::object(std::move(object)), [](const nb::object* held) {
            if (!Py_IsInitialized()) return;
            nb::gil_scoped_acquire locked;
            delete held;
          }};
}

Time time_or_none(nb::handle value) { return value.is_none() ? kNone : nb::cast<Time>(value); }
Time time_of(nb::handle object, const char* name) { return time_or_none(object.attr(name)); }
nb::object python_time(Time time) { return time == kNone ? nb::none() : nb::object(nb::int_(time)); }

std::vector<uint64_t> words(nb::handle mask, size_t nodes) {
  std::vector<uint64_t> found((nodes + 63) / 64);
  nb::bytes raw = nb::cast<nb::bytes>(mask.attr("to_bytes")(found.size() * 8, "little"));
  std::copy_n(static_cast<const uint8_t*>(raw.data()), found.size() * 8, reinterpret_cast<uint8_t*>(found.data()));
  return found;
}

Params params_of(nb::handle p) {
  Params out;
  auto flag = [&](const char* name) { return nb::cast<bool>(p.attr(name)); };
  auto number = [&](const char* name) { return time_of(p, name); };
  out.linear = nb::cast<std::string>(p.attr("select_type").attr("value")) == "select/linear";
  out.main = flag("main");
  out.backfill = flag("backfill");
  out.multifactor = flag("priority_multifactor");
  out.favor_small = flag("priority_favor_small");
  out.accrue_always = flag("accrue_always");
  out.incr_only = flag("incr_only");
  out.defer = flag("defer");
  out.busy_nodes = flag("bf_busy_nodes");
  out.one_reservation = flag("bf_one_resv_per_job");
  out.sched_interval = number("sched_interval_s");
  out.batch_sched_delay = number("batch_sched_delay_s");
  out.sched_min_interval = number("sched_min_interval_s");
  out.bf_interval = number("bf_interval_s");
  out.bf_window = number("bf_window_s");
  out.bf_resolution = number("bf_resolution_s");
  out.bf_window_linear = number("bf_window_linear_s");
  out.bf_cycle_us = number("bf_cycle_us");
  out.calc_period = number("priority_calc_period_s");
  out.max_age = number("priority_max_age_s");
  out.limit_check = number("limit_check_s");
  out.kill_wait = number("kill_wait_s");
  out.min_job_age = number("min_job_age_s");
  out.requeue_delay = number("requeue_delay_s");
  out.queue_depth = number("default_queue_depth");
  out.max_job_test = number("bf_max_job_test");
  out.node_space = number("node_space_size");
  out.partition_depth = number("partition_job_depth");
  out.main_max_start = number("sched_max_job_start");
  out.max_job_user = number("bf_max_job_user");
  out.max_job_part = number("bf_max_job_part");
  out.max_job_user_part = number("bf_max_job_user_part");
  out.max_job_assoc = number("bf_max_job_assoc");
  out.part_reserve = number("bf_job_part_count_reserve");
  out.min_age_reserve = number("bf_min_age_reserve_s");
  out.min_prio_reserve = number("bf_min_prio_reserve");
  out.max_job_start = number("bf_max_job_start");
  out.max_array_resv = number("bf_max_job_array_resv");
  out.time_min_extends = flag("time_min_extends");
  out.weight_age = number("priority_weight_age");
  out.weight_size = number("priority_weight_job_size");
  out.weight_share = number("priority_weight_fairshare");
  out.small_relative_to_time = flag("small_relative_to_time");
  out.no_normal_tres = flag("no_normal_tres");
  out.max_tres = flag("max_tres");
  out.idle_threads_count = flag("idle_threads_count");
  out.threads = number("threads_per_core");
  out.memory_is_consumable = flag("memory_is_consumable");
  out.over_time_limit = number("over_time_limit_s");
  constexpr const char* kWeights[] = {"priority_weight_cpus", "priority_weight_memory", "priority_weight_nodes",
                                      "priority_weight_gpus"};  // by Tres
  for (int i = 0; i < kTres; i++) {
    out.weight_tres[i] = nb::cast<double>(p.attr(kWeights[i]));
    out.weighs_tres = out.weighs_tres || out.weight_tres[i] != 0;
  }
  return out;
}

const std::pair<const char*, QosLimit> kQosLimits[] = {
    {"grp_jobs", {0, kJobs, kAll, 0, Reason::kGrpJobs}},
    {"max_jobs_per_account", {0, kJobs, kOfAccount, 0, Reason::kMaxJobsAccount}},
    {"max_jobs_per_user", {0, kJobs, kOfUser, 0, Reason::kMaxJobsUser}},
    {"grp_cpus", {0, kCpus, kAll, 0, Reason::kGrpCpu}},
    {"grp_nodes", {0, kNodes, kAll, 0, Reason::kGrpNode}},
    {"grp_gpus", {0, kGpus, kAll, 0, Reason::kGrpGres}},
    {"max_cpus_per_account", {0, kCpus, kOfAccount, 0, Reason::kMaxCpuAccount}},
    {"max_nodes_per_account", {0, kNodes, kOfAccount, 0, Reason::kMaxNodeAccount}},
    {"max_gpus_per_account", {0, kGpus, kOfAccount, 0, Reason::kMaxGresAccount}},
    {"max_cpus_per_user", {0, kCpus, kOfUser, 0, Reason::kMaxCpuUser}},
    {"max_nodes_per_user", {0, kNodes, kOfUser, 0, Reason::kMaxNodeUser}},
    {"max_gpus_per_user", {0, kGpus, kOfUser, 0, Reason::kMaxGresUser}},
};

const std::pair<const char*, SubmitLimit> kSubmitLimits[] = {
    {"max_submit_jobs_per_account", {0, kOfAccount, 0, Reason::kMaxSubmitAccount}},
    {"max_submit_jobs_per_user", {0, kOfUser, 0, Reason::kMaxSubmit}},
};

constexpr const char* kGroupLimits[] = {"grp_jobs", "grp_nodes", "grp_cpus", "grp_gpus"};  // by Kind

// Of a QOS or an association.
Amounts group_limits(nb::handle of) {
  Amounts most;
  for (int kind = 0; kind < kKinds; kind++) most[kind] = time_of(of, kGroupLimits[kind]);
  return most;
}

LimitSet limit_set(const std::vector<std::pair<int, nb::object>>& all_qos) {
  LimitSet set;
  for (const auto& [index, qos] : all_qos) {
    set.counted.push_back(index);
    Amounts together = group_limits(qos);
    for (int kind = 0; kind < kKinds; kind++) set.group[kind] = set.group[kind] || together[kind] != kNone;
    set.own_max_jobs = set.own_max_jobs || !qos.attr("max_jobs_per_user").is_none() ||
                       !qos.attr("max_jobs_per_account").is_none();
  }
  for (const auto& [name, like] : kSubmitLimits) {
    for (const auto& [index, qos] : all_qos) {
      Time most = time_of(qos, name);
      if (most == kNone) continue;
      set.submit.push_back({index, like.scope, most, like.reason});
      break;
    }
  }
  for (const auto& [name, like] : kQosLimits) {
    for (const auto& [index, qos] : all_qos) {
      Time most = time_of(qos, name);
      if (most == kNone) continue;
      QosLimit limit = like;
      limit.qos = index;
      limit.most = most;
      set.limits.push_back(limit);
      set.alike = set.alike && limit.kind == kJobs;
      break;
    }
  }
  return set;
}

// Of a ClusterConfig; `masks`, `reserved`, in `kinds` beside the weight: sets of nodes as ints; `partition_parts`,
// `qos_parts`: of priorities.
std::shared_ptr<Config> make_config(nb::object cluster, std::vector<nb::object> masks,
                                    std::vector<std::pair<int64_t, nb::object>> kinds, std::vector<nb::object> reserved,
                                    std::vector<double> partition_parts, std::vector<double> qos_parts, double decay) {
  auto out = std::make_shared<Config>();
  out->params = params_of(cluster.attr("params"));
  out->params.decay = decay;
  for (nb::handle node : cluster.attr("nodes")) {
    out->node_names.push_back(nb::cast<std::string>(node.attr("name")));
    out->nodes.push_back({nb::cast<int64_t>(node.attr("cpus")), nb::cast<int64_t>(node.attr("memory_mib")),
                          nb::cast<int64_t>(node.attr("gpus")), nb::cast<double>(node.attr("idle_w")),
                          nb::cast<double>(node.attr("busy_w"))});
    const Node& each = out->nodes.back();
    out->cpus += each.cpus;
    out->node_cpus.push_back(each.cpus);
    out->node_memory.push_back(each.memory);
    if (out->nodes.size() == 1) out->least = out->most = each;
    out->least.cpus = std::min(out->least.cpus, each.cpus);
    out->least.gpus = std::min(out->least.gpus, each.gpus);
    out->most.cpus = std::max(out->most.cpus, each.cpus);
    out->most.gpus = std::max(out->most.gpus, each.gpus);
    out->draws_power = out->draws_power || out->nodes.back().idle_w != 0 || out->nodes.back().busy_w != 0;
  }
  size_t count = out->nodes.size();
  for (const auto& [weight, nodes] : kinds) out->kinds.push_back({weight, words(nodes, count)});
  for (size_t i = 0; i < count; i++) {
    auto gpus = static_cast<size_t>(std::min(out->nodes[i].gpus, kMostGpus));
    if (out->by_gpus.size() <= gpus) out->by_gpus.resize(gpus + 1, std::vector<uint64_t>((count + 63) / 64));
    out->by_gpus[gpus][i / 64] |= uint64_t{1} << i % 64;
  }
  out->qos_part = qos_parts;
  std::vector<nb::object> qos;
  std::vector<std::string> qos_names;
  for (nb::handle item : cluster.attr("qos")) {
    qos.push_back(nb::borrow(item));
    qos_names.push_back(nb::cast<std::string>(item.attr("name")));
    out->usage_factor.push_back(nb::cast<double>(item.attr("usage_factor")));
  }
  size_t index = 0;
  for (nb::handle partition : cluster.attr("partitions")) {
    Time over = time_of(partition, "over_time_limit_s");
    out->partitions.push_back({nb::cast<int64_t>(partition.attr("priority_tier")), partition_parts[index],
                               over == kNone ? out->params.over_time_limit : over, words(masks[index], count)});
    Partition& its = out->partitions.back();
    constexpr const char* kBilling[kTres] = {"billing_weight_cpus", "billing_weight_memory", "billing_weight_nodes",
                                             "billing_weight_gpus"};
    for (int i = 0; i < kTres; i++) its.billing[i] = nb::cast<double>(partition.attr(kBilling[i]));
    for (size_t i = 0; i < count; i++) {
      if (!(its.nodes[i / 64] >> i % 64 & 1)) continue;
      const Node& node = out->nodes[i];
      its.tres[kTresCpus] += node.cpus;
      its.tres[kTresMemory] += node.memory;
      its.tres[kTresNodes]++;
      its.tres[kTresGpus] += node.gpus;
    }
    index++;
    out->partition_names.push_back(nb::cast<std::string>(partition.attr("name")));
    int first = -1;
    if (nb::object own = partition.attr("qos"); !own.is_none()) {
      auto name = nb::cast<std::string>(own);
      first = static_cast<int>(std::find(qos_names.begin(), qos_names.end(), name) - qos_names.begin());
    }
    for (int i = 0; i < static_cast<int>(qos.size()); i++) {
      std::vector<std::pair<int, nb::object>> all;
      if (first >= 0) all.emplace_back(first, qos[first]);
      if (first != i) all.emplace_back(i, qos[i]);
      out->limit_sets.push_back(limit_set(all));
      out->any_limit = out->any_limit || !out->limit_sets.back().limits.empty();
      for (const QosLimit& limit : out->limit_sets.back().limits)
        out->any_node_limit = out->any_node_limit || limit.kind == kNodes;
      out->any_submit_limit = out->any_submit_limit || !out->limit_sets.back().submit.empty();
    }
  }
  bool jobs_alone = true;
  for (nb::handle item : cluster.attr("associations")) {
    Amounts most = group_limits(item);
    bool resources = std::any_of(most.begin() + 1, most.end(), [](int64_t each) { return each != kNone; });
    jobs_alone = jobs_alone && !resources;
    out->any_group_limit = out->any_group_limit || resources || most[kJobs] != kNone;
    out->any_node_limit = out->any_node_limit || most[kNodes] != kNone;
    out->any_limit = out->any_limit || out->any_group_limit || !item.attr("max_jobs").is_none();
  }
  for (LimitSet& set : out->limit_sets) set.alike = set.alike && jobs_alone;
  index = 0;
  for (nb::handle item : cluster.attr("reservations"))
    out->reservations.push_back({time_of(item, "start_s"), time_of(item, "end_s"), words(reserved[index++], count)});
  for (nb::handle change : cluster.attr("node_changes")) {
    auto name = nb::cast<std::string>(change.attr("node"));
    auto node = std::find(out->node_names.begin(), out->node_names.end(), name) - out->node_names.begin();
    auto action = nb::cast<std::string>(change.attr("action").attr("value"));
    out->node_changes.push_back({time_of(change, "time_s"), static_cast<int>(node),
                                 action == "DOWN"    ? NodeChange::kDown
                                 : action == "DRAIN" ? NodeChange::kDrain
                                                     : NodeChange::kResume});
  }
  return out;
}

std::shared_ptr<Catalogue> make_catalogue(nb::object cluster) {
  auto out = std::make_shared<Catalogue>();
  out->members.emplace_back().account = 0;
  out->account_member["root"] = 0;
  for (nb::handle item : cluster.attr("associations")) {
    auto account = nb::cast<std::string>(item.attr("account"));
    nb::object user = item.attr("user"), most = item.attr("max_jobs");
    std::string key = user.is_none() ? account : Catalogue::key(account, nb::cast<std::string>(user));
    out->max_jobs.erase(key);
    if (!most.is_none()) out->max_jobs[key] = nb::cast<int64_t>(most);
    if (user.is_none()) out->parents[account] = nb::cast<std::string>(item.attr("parent"));
  }
  for (nb::handle item : cluster.attr("associations")) {
    auto account = nb::cast<std::string>(item.attr("account"));
    auto shares = nb::cast<int64_t>(item.attr("shares"));
    nb::object user = item.attr("user");
    int index = user.is_none() ? out->account(account)
                               : out->member_of_person[out->person(account, nb::cast<std::string>(user))];
    out->members[index].shares = shares;
    out->members[index].most = group_limits(item);
  }
  return out;
}

// What Python found out about a job: (partition, cpus, memory, gpus, whole, by_cpu, reservation, nodes as int).
void set_shape(Submission& job, nb::tuple form, size_t nodes) {
  job.shape.partition = nb::cast<int>(form[0]);
  job.request = {nb::cast<int64_t>(form[1]), time_or_none(form[2]), nb::cast<int64_t>(form[3]),
                 nb::cast<bool>(form[4]), {}};
  if (nb::object by_cpu = form[5]; !by_cpu.is_none()) {
    auto [memory, step, task] = nb::cast<std::tuple<int64_t, int64_t, int64_t>>(by_cpu);
    job.request.by_cpu = {memory, step, task};
  }
  job.shape.reservation = nb::cast<int>(form[6]);
  job.shape.suitable = words(form[7], nodes);
  job.shape.listed = words(form[8], nodes);
}

std::shared_ptr<const Dependencies> dependencies_of(nb::handle given) {
  auto out = std::make_shared<Dependencies>();
  out->any_of = nb::cast<bool>(given.attr("any_of"));
  for (nb::handle item : given.attr("items")) {
    auto kind = nb::cast<std::string>(item.attr("kind"));
    out->items.push_back({kind == "after"      ? Dependency::kAfter
                          : kind == "afterany" ? Dependency::kAny
                          : kind == "afterok"  ? Dependency::kOk
                                               : Dependency::kNotOk,
                          false, nb::cast<int64_t>(item.attr("job_id")), nb::cast<int64_t>(item.attr("delay_s"))});
  }
  return out;
}

// Of a JobSpec; `dependencies` None: it has none.
Submission submission(nb::object spec, nb::list forms, Time limit, int64_t memory, int qos, nb::object dependencies,
                      size_t nodes) {
  Submission job;
  Spec& s = job.spec;
  s.job_id = time_of(spec, "job_id");
  s.submit = time_of(spec, "submit_s");
  s.begin = time_of(spec, "begin_s");
  s.limit = limit;
  s.runtime = time_of(spec, "runtime_s");
  s.nodes = nb::cast<int32_t>(spec.attr("nodes"));
  s.qos = qos;
  s.cpus = nb::cast<int64_t>(spec.attr("cpus_per_node"));
  s.memory = memory;
  s.gpus = nb::cast<int64_t>(spec.attr("gpus_per_node"));
  s.held = nb::cast<bool>(spec.attr("held"));
  s.requeue = nb::cast<bool>(spec.attr("requeue"));
  s.failing = nb::cast<int64_t>(spec.attr("exit_code")) != 0;
  job.account = nb::cast<std::string>(spec.attr("account"));
  job.user = nb::cast<std::string>(spec.attr("user"));
  job.dependency = nb::cast<std::string>(spec.attr("dependency"));
  if (!dependencies.is_none()) job.extras.dependencies = dependencies_of(dependencies);
  job.extras.priority = time_of(spec, "priority");
  job.extras.nice = nb::cast<int64_t>(spec.attr("nice"));
  if (nb::object array = spec.attr("array_job_id"); !array.is_none()) job.extras.array = nb::cast<int64_t>(array);
  job.extras.throttle = time_of(spec, "array_throttle");
  job.extras.cancel = time_of(spec, "cancel_s");
  job.extras.time_min = time_of(spec, "time_min_s");
  for (size_t i = 1; i < nb::len(forms); i++) {
    Submission other;
    set_shape(other, nb::cast<nb::tuple>(forms[i]), nodes);
    job.others.emplace_back(other.shape, other.request);
  }
  set_shape(job, nb::cast<nb::tuple>(forms[0]), nodes);
  return job;
}

// Collects the jobs that a simulation begins with.
struct Builder {
  std::shared_ptr<const Config> config;
  std::shared_ptr<Catalogue> catalogue;
  std::shared_ptr<Trace> trace = std::make_shared<Trace>();
  Time start;

  Builder(std::shared_ptr<Config> c, std::shared_ptr<Catalogue> k, Time begin)
      : config(std::move(c)), catalogue(std::move(k)), start(begin) {}

  int shape(nb::tuple form) {
    Submission job;
    set_shape(job, form, config->nodes.size());
    return catalogue->shape(job.shape, job.request);
  }
  int person(const std::string& account, const std::string& user) { return catalogue->person(account, user); }

  // `shapes`: in each of its partitions.
  void add(nb::object spec, std::vector<int> shapes, int person, Time limit, int64_t memory, int qos, int64_t job_id,
           nb::object dependencies) {
    Submission job;
    Spec s;
    s.job_id = job_id;
    s.submit = time_of(spec, "submit_s");
    s.begin = time_of(spec, "begin_s");
    s.limit = limit;
    s.runtime = time_of(spec, "runtime_s");
    s.nodes = nb::cast<int32_t>(spec.attr("nodes"));
    s.shape = shapes[0];
    s.person = person;
    s.qos = qos;
    s.cpus = nb::cast<int64_t>(spec.attr("cpus_per_node"));
    s.memory = memory;
    s.gpus = nb::cast<int64_t>(spec.attr("gpus_per_node"));
    s.held = nb::cast<bool>(spec.attr("held"));
    s.requeue = nb::cast<bool>(spec.attr("requeue"));
    s.failing = nb::cast<int64_t>(spec.attr("exit_code")) != 0;
    Extras more;
    if (!dependencies.is_none()) more.dependencies = dependencies_of(dependencies);
    more.priority = time_of(spec, "priority");
    more.nice = nb::cast<int64_t>(spec.attr("nice"));
    more.cancel = time_of(spec, "cancel_s");
    more.time_min = time_of(spec, "time_min_s");
    more.throttle = time_of(spec, "array_throttle");
    if (nb::object array = spec.attr("array_job_id"); !array.is_none()) more.array = nb::cast<int64_t>(array);
    if (shapes.size() > 1) more.choices.assign(shapes.begin(), shapes.end());
    add_row(s, more);
  }
  void add_row(Spec s, Extras more) {
    auto index = static_cast<int32_t>(trace->specs.size());
    bool of_array = more.array != kNone;
    if (of_array) {
      auto [found, is_new] = catalogue->array_index.try_emplace(more.array, static_cast<int>(catalogue->arrays.size()));
      if (is_new) catalogue->arrays.emplace_back();
      catalogue->arrays[found->second].push_back(index);
      more.array = found->second;
    } else {
      more.array = -1;
    }
    if (more.dependencies || more.priority != kNone || more.nice || more.cancel != kNone || of_array ||
        more.time_min != kNone || !more.choices.empty()) {
      s.extras = static_cast<int32_t>(trace->extras.size());
      trace->extras.push_back(more);
    }
    if (s.submit == kNone) s.submit = start;
    trace->specs.push_back(s);
  }

  using Column = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
  // Columns of equal length, checked by Python; -1 stands for none in limit_s, runtime_s, begin_s, cancel_s, priority.
  void add_columns(Column job_id, Column submit, Column nodes, Column limit, Column runtime, Column shape, Column person,
                   Column qos, Column cpus, Column memory, Column gpus, Column cancel, Column failing) {
    size_t count = job_id.shape(0);
    trace->specs.reserve(count);
    auto optional = [](int64_t value) { return value < 0 ? kNone : value; };
    for (size_t i = 0; i < count; i++) {
      Spec s;
      s.job_id = job_id.data()[i];
      s.submit = submit.data()[i];
      s.begin = kNone;
      s.limit = optional(limit.data()[i]);
      s.runtime = optional(runtime.data()[i]);
      s.nodes = static_cast<int32_t>(nodes.data()[i]);
      s.shape = static_cast<int32_t>(shape.data()[i]);
      s.person = static_cast<int32_t>(person.data()[i]);
      s.qos = static_cast<int32_t>(qos.data()[i]);
      s.cpus = cpus.data()[i];
      s.memory = memory.data()[i];
      s.gpus = gpus.data()[i];
      s.failing = failing.data()[i] != 0;
      Extras more;
      more.cancel = optional(cancel.data()[i]);
      add_row(s, more);
    }
  }

  std::unique_ptr<Core> build(nb::object origins) {
    finish(origins, start, 0);
    auto core = make_core(config, trace, catalogue, start);
    core->enter_due();
    return core;
  }
  // The first jobs are those of a state, (start, submit, eligible, reason, nodes as int), start None: in the queue.
  std::unique_ptr<Core> build_state(nb::object origins, Time now, nb::list items, std::vector<int> down,
                                    nb::object timers) {
    std::vector<Placed> placed;
    for (nb::handle item : items) {
      auto reason = nb::cast<std::string>(item[3]);
      auto known = std::find(std::begin(kReasonNames), std::end(kReasonNames), reason) - std::begin(kReasonNames);
      placed.push_back({static_cast<int32_t>(placed.size()), time_or_none(item[0]), nb::cast<Time>(item[1]),
                        time_or_none(item[2]), static_cast<Reason>(known), words(item[4], config->nodes.size())});
    }
    finish(origins, now, static_cast<int32_t>(placed.size()));
    auto core = make_core(config, trace, catalogue, start);
    if (timers.is_none()) {
      core->put_in(now, placed, down, nullptr);
    } else {
      auto due = [&](const char* name) { Time at = time_of(timers, name); return at == kNone ? kNever : at; };
      Timers phases{time_of(timers, "last_main_s"), time_of(timers, "last_full_s"), time_of(timers, "last_pass_s"),
                    due("put_off_s"), nb::cast<bool>(timers.attr("put_off_full")), time_of(timers, "last_backfill_us"),
                    due("main_due_s"), due("backfill_due_s"), nb::cast<bool>(timers.attr("main_wanted")),
                    nb::cast<bool>(timers.attr("review_wanted")), nb::cast<bool>(timers.attr("planned"))};
      core->put_in(now, placed, down, &phases);
    }
    return core;
  }
  // `later`: from this job on they are submitted at their time, if that is after `now`.
  void finish(nb::object origins, Time now, int32_t later) {
    Trace& t = *trace;
    t.origins = keep(origins);
    auto count = static_cast<int32_t>(t.specs.size());
    if (count) t.first_id = t.specs[0].job_id;
    bool in_a_row = true;
    for (int32_t i = 0; i < count; i++) {
      const Spec& s = t.specs[i];
      in_a_row = in_a_row && s.job_id == t.first_id + i;
      t.next_id = std::max(t.next_id, s.job_id + 1);
      if (i >= later && s.submit > now) t.by_submit.push_back(i);
    }
    if (!in_a_row)
      for (int32_t i = 0; i < count; i++) t.by_id[t.specs[i].job_id] = i;
    std::stable_sort(t.by_submit.begin(), t.by_submit.end(),
                     [&](int32_t a, int32_t b) { return t.specs[a].submit < t.specs[b].submit; });
  }
};

// ---- what comes back

nb::object dependencies_for(const Core& core, const Record& record) {
  const Dependencies* left = core.dependencies(record);
  if (!left) return types().no_dependencies;
  nb::list items;
  for (const Dependency& item : left->items)
    items.append(types().dependency(types().kinds[item.kind], item.job_id, item.delay, item.failed));
  return types().dependencies(nb::tuple(items), left->any_of);
}

nb::object spec_for(const Core& core, const Record& record) {
  const Extras* more = core.extras(core.spec(record.job));
  if (more && more->origin) return *static_cast<const nb::object*>(more->origin.get());
  return static_cast<const nb::object*>(core.trace->origins.get())->attr("__getitem__")(record.job);
}

nb::object python_record(const Core& core, const Record& r, nb::handle names) {
  nb::object allocated = nb::int_(0);
  nb::list node_names;
  for (const Range& range : core.ranges(r)) {
    allocated = allocated | (((nb::int_(1) << nb::int_(range.length)) - nb::int_(1)) << nb::int_(range.first));
    for (int i = range.first; i < range.first + range.length; i++) node_names.append(names[i]);
  }
  const Spec& spec = core.spec(r.job);
  const Extras* more = core.extras(spec);
  int shape = more && !more->choices.empty() ? more->choices[r.choice] : spec.shape;
  return types().record(
      r.job_id, spec_for(core, r), core.config->partition_names[core.catalogue->shapes[shape].partition],
      python_time(r.limit), r.submit, dependencies_for(core, r), r.nodes, python_time(r.begin), r.held,
      types().states[static_cast<int>(r.state)], types().reasons[static_cast<int>(r.reason)], r.priority,
      python_time(r.eligible), python_time(r.start), python_time(r.end), allocated, nb::tuple(node_names),
      types().schedulers[r.scheduler], r.restarts, r.suspended);
}

nb::list python_records(const Core& core, const std::vector<Record>& records, nb::handle names) {
  nb::list out;
  for (const Record& record : records) out.append(python_record(core, record, names));
  return out;
}

template <class T, class F>
nb::object column(int64_t count, F value) {
  auto* data = new T[count > 0 ? count : 1];
  for (int64_t i = 0; i < count; i++) data[i] = static_cast<T>(value(i));
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {static_cast<size_t>(count)}, owner));
}

// All jobs, in the order in which they were given; -1: none, or not submitted yet.
nb::dict results(const Core& core) {
  std::vector<Record> all(core.job_count());
  for (int32_t i = 0; i < core.job_count(); i++) all[i] = core.record_of(i);
  auto count = static_cast<int64_t>(all.size());
  auto time = [](Time t) { return t == kNone ? Time{-1} : t; };
  nb::dict out;
  out["job_id"] = column<int64_t>(count, [&](int64_t i) { return core.spec(static_cast<int32_t>(i)).job_id; });
  out["submit_s"] = column<int64_t>(count, [&](int64_t i) { return all[i].job < 0 ? Time{-1} : all[i].submit; });
  out["eligible_s"] = column<int64_t>(count, [&](int64_t i) { return time(all[i].eligible); });
  out["start_s"] = column<int64_t>(count, [&](int64_t i) { return time(all[i].start); });
  out["end_s"] = column<int64_t>(count, [&](int64_t i) { return time(all[i].end); });
  out["state"] = column<int8_t>(count, [&](int64_t i) { return all[i].job < 0 ? -1 : static_cast<int>(all[i].state); });
  out["nodes"] = column<int64_t>(count, [&](int64_t i) { return all[i].job < 0 ? -1 : all[i].nodes; });
  out["restarts"] = column<int64_t>(count, [&](int64_t i) { return all[i].restarts; });
  out["scheduler"] = column<int8_t>(count, [&](int64_t i) { return all[i].scheduler; });
  return out;
}

// (queued nodes, age, limit, running nodes, elapsed, limit; idle nodes, up nodes): numpy arrays by id; limit -1: none.
nb::tuple sample(const Core& core) {
  std::vector<Record> queued, running = core.in_state(State::kRunning);
  for (const Record& job : core.in_state(State::kPending))
    if (core.is_competing(job.job_id) && !is_limited(job.reason)) queued.push_back(job);
  Time now = core.now();
  auto limit = [](const Record& job) { return job.limit == kNone ? Time{-1} : job.limit; };
  auto size = [](const std::vector<Record>& jobs) { return static_cast<int64_t>(jobs.size()); };
  return nb::make_tuple(
      column<int64_t>(size(queued), [&](int64_t i) { return queued[i].nodes; }),
      column<int64_t>(size(queued), [&](int64_t i) { return now - queued[i].eligible; }),
      column<int64_t>(size(queued), [&](int64_t i) { return limit(queued[i]); }),
      column<int64_t>(size(running), [&](int64_t i) { return running[i].nodes; }),
      column<int64_t>(size(running), [&](int64_t i) { return now - running[i].start; }),
      column<int64_t>(size(running), [&](int64_t i) { return limit(running[i]); }),
      core.idle_nodes(), core.up_nodes());
}

void set_types(nb::object record, nb::object dependencies, nb::object dependency, nb::list states, nb::list errors) {
  Types& t = types();
  t.record = record;
  t.dependencies = dependencies;
  t.dependency = dependency;
  t.no_dependencies = dependencies();
  t.states.clear();
  for (nb::handle state : states) t.states.push_back(nb::borrow(state));
  t.reasons.clear();
  for (const char* name : kReasonNames) t.reasons.push_back(nb::str(name));
  t.schedulers = {nb::str(""), nb::str("main"), nb::str("backfill")};
  t.kinds = {nb::str("after"), nb::str("afterany"), nb::str("afterok"), nb::str("afternotok")};
  for (int i = 0; i < 3; i++) t.errors[i] = errors[i];
}

// ---- one caller at a time

void check_free(const Core& core) {
  if (core.busy)
    throw Refusal(Refusal::kSimulation, "this simulation is running in another thread; give each thread a fork() of it");
}

// Runs without the interpreter's lock, so that other threads go on; they must leave this simulation alone.
template <class F>
auto unlocked(Core& core, F run) {
  struct Busy {
    Core& core;
    explicit Busy(Core& c) : core(c) { core.busy = true; }
    ~Busy() { core.busy = false; }
  } busy(core);
  nb::gil_scoped_release released;
  return run();
}

// In parts of up to a second, so that Ctrl-C ends it, between two events.
void run_until(Core& core, Time time) {
  while (!unlocked(core, [&] { return core.advance(time, 1000); }))
    if (PyErr_CheckSignals()) throw nb::python_error();
}

template <class Result, class... Given>
auto alone(Result (Core::*method)(Given...)) {
  return [method](Core& core, Given... given) -> Result {
    check_free(core);
    return (core.*method)(given...);
  };
}
template <class Result, class... Given>
auto alone(Result (Core::*method)(Given...) const) {
  return [method](const Core& core, Given... given) -> Result {
    check_free(core);
    return (core.*method)(given...);
  };
}
template <class Self, class Result, class... Given>
auto alone_as(Result (*function)(Self&, Given...)) {
  return [function](Self& core, Given... given) -> Result {
    check_free(core);
    return function(core, given...);
  };
}
// A lambda whose first argument is the simulation.
template <class F>
auto alone(F function) {
  return alone_as(+function);
}

}  // namespace
}  // namespace slurm_sim

namespace slurm_sim {
void bind_observe(nanobind::module_& m);
}

NB_MODULE(_core, m) {
  using namespace slurm_sim;
  nb::set_leak_warnings(false);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Refusal& refusal) {
      PyErr_SetString(types().errors[refusal.kind].ptr(), refusal.what());
    }
  });
  m.def("set_types", &set_types);
  m.def("reasons", [] { return std::vector<std::string>(std::begin(kReasonNames), std::end(kReasonNames)); });
  nb::class_<Config>(m, "Config");
  nb::class_<Catalogue>(m, "Catalogue");
  m.def("make_config", &make_config);
  m.def("make_catalogue", &make_catalogue);
  nb::class_<Builder>(m, "Builder")
      .def(nb::init<std::shared_ptr<Config>, std::shared_ptr<Catalogue>, Time>())
      .def("shape", &Builder::shape)
      .def("person", &Builder::person)
      .def("add", [](Builder& self, nb::object spec, std::vector<int> shapes, int person, nb::object limit,
                     int64_t memory, int qos, int64_t job_id, nb::object dependencies) {
        self.add(spec, std::move(shapes), person, time_or_none(limit), memory, qos, job_id, dependencies);
      }, "spec"_a, "shapes"_a, "person"_a, "limit_s"_a.none(), "memory_mib"_a, "qos"_a, "job_id"_a, "dependencies"_a.none())
      .def("add_columns", &Builder::add_columns)
      .def("build", &Builder::build)
      .def("build_state", &Builder::build_state, "specs"_a, "now_s"_a, "items"_a, "down"_a, "timers"_a.none());
  nb::class_<Core>(m, "Core")
      .def("fork", alone(&Core::fork))
      // For benchmarks/sim_speed.py: seconds of CPU that so many forks take, each dropped again, without Python.
      .def("time_forks", alone([](Core& core, int64_t count) {
        std::clock_t begin = std::clock();
        for (; count > 0; count--) core.fork();
        return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
      }))
      .def_prop_ro("now_s", &Core::now)
      .def_rw("news_wanted", &Core::news_wanted)
      .def_rw("thorough", &Core::thorough)
      .def("next_event_s", alone([](Core& core) { Time t = core.next_event(); return t == kNever ? nb::none() : nb::object(nb::int_(t)); }))
      .def("run_until", alone([](Core& core, Time time) { run_until(core, time); }))
      .def("run", alone([](Core& core) { run_until(core, kNever); }))
      .def("run_until_start", alone([](Core& core, int64_t job_id, Time latest) {
        return python_time(unlocked(core, [&] { return core.run_until_start(job_id, latest); }));
      }))
      .def("timers", alone([](const Core& core) {
        Timers t = core.timers();
        auto due = [](Time at) { return at == kNever ? nb::none() : nb::object(nb::int_(at)); };
        return nb::make_tuple(t.last_main, t.last_full, t.last_pass, due(t.put_off), t.put_off_full, t.last_backfill_us,
                              due(t.main_due), due(t.backfill_due),
                              t.main_wanted, t.review_wanted, t.planned);
      }))
      .def("submit", alone([](Core& core, nb::object spec, nb::list forms, nb::object limit, int64_t memory, int qos,
                              nb::object dependencies) {
        Submission job = submission(spec, forms, time_or_none(limit), memory, qos, dependencies, core.config->nodes.size());
        job.extras.origin = keep(spec);
        return core.submit(job);
      }), "spec"_a, "forms"_a, "limit_s"_a.none(), "memory_mib"_a, "qos"_a, "dependencies"_a.none())
      .def("check_new", alone([](const Core& core, nb::object submit, int64_t job_id) {
        core.check_new(submit.is_none() ? core.now() : nb::cast<Time>(submit), job_id);
      }), "submit_s"_a.none(), "job_id"_a)
      .def("cancel", alone(&Core::cancel))
      .def("requeue", alone(&Core::requeue))
      .def("drop_dependency", alone(&Core::drop_dependency))
      .def("hold", alone(&Core::hold))
      .def("release", alone(&Core::release))
      .def("set_runtime_end", alone(&Core::set_runtime_end))
      .def("forget_future", alone(&Core::forget_future))
      .def("suspend", alone(&Core::suspend))
      .def("resume", alone(&Core::resume))
      .def("check_resizable", alone(&Core::check_resizable))
      .def("resize", alone(&Core::resize))
      .def("change_node", alone([](Core& core, int node, int action) { core.change_node(node, static_cast<NodeChange::Action>(action)); }))
      .def("job", alone([](Core& core, int64_t job_id, nb::handle names) { return python_record(core, core.job(job_id), names); }))
      .def("in_state", alone([](Core& core, int state, nb::handle names) {
        return python_records(core, core.in_state(static_cast<State>(state)), names);
      }))
      .def("finished", alone([](Core& core, Time since, nb::handle names) {
        int64_t low = 0, high = core.finished_count();
        while (low < high) {
          int64_t middle = (low + high) / 2;
          if (core.finished(middle).end < since) low = middle + 1;
          else high = middle;
        }
        nb::list out;
        for (; low < core.finished_count(); low++) out.append(python_record(core, core.finished(low), names));
        return out;
      }))
      .def("cut_short", alone([](Core& core, nb::handle names) {
        nb::list out;
        for (int64_t i = 0; i < core.cut_short_count(); i++) out.append(python_record(core, core.cut_short(i), names));
        return out;
      }))
      .def("outages", alone([](Core& core) {
        nb::list out;
        for (const Outage& o : core.outages()) out.append(nb::make_tuple(o.node, o.start, python_time(o.end)));
        return out;
      }))
      .def("is_up", alone(&Core::is_up))
      .def("is_idle", alone(&Core::is_idle))
      .def("energy_j", alone(&Core::energy))
      .def("results", alone(&results))
      .def("sample", alone(&sample))
      .def("take_news", alone([](Core& core, nb::handle names) {
        nb::list out;
        for (const News& n : core.take_news()) out.append(nb::make_tuple(n.is_start, python_record(core, n.record, names)));
        return out;
      }));
  bind_observe(m);
}
