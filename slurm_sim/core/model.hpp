// What a simulation is given and never changes: the cluster, the jobs asked for. The names are Slurm's, as in config.py.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace slurm_sim {

using Time = int64_t;
constexpr Time kNone = INT64_MIN;                  // Python's None
constexpr Time kNever = INT64_MAX;
constexpr Time kYear = 365 * Time{86400};          // what Slurm plans for a job without a limit; OverTimeLimit=UNLIMITED
constexpr Time kSecondUs = 1'000'000;
constexpr Time kTickPhaseUs = 550'000;             // where in the second the background loop comes
constexpr Time kBackfillPhaseUs = 400'000;         // where in the second backfill looks for news
constexpr int64_t kMostPriority = 4294967295;       // of 32 bits, also UNLIMITED in minutes
constexpr int64_t kTopPriority = 0xFFFF'0000;       // with priority/basic the first job gets one less
constexpr int64_t kMostGpus = 255;                  // that select/cons_tres tells apart
constexpr Time kGroup = 30;                         // cons_tres ends running jobs in groups, see backfill.py

// Becomes slurm_sim.errors.<kind> in Python.
struct Refusal : std::runtime_error {
  enum Kind { kSimulation, kUnknownJob, kInvalidJob } kind;
  Refusal(Kind k, const std::string& text) : std::runtime_error(text), kind(k) {}
};

enum class State : uint8_t { kPending, kRunning, kSuspended, kCompleted, kFailed, kTimeout, kCancelled, kNodeFail, kRequeued };
inline bool is_over(State state) { return state > State::kSuspended; }
constexpr const char* kStateNames[] = {"PENDING", "RUNNING",   "SUSPENDED", "COMPLETED", "FAILED",
                                       "TIMEOUT", "CANCELLED", "NODE_FAIL", "REQUEUED"};

enum class Reason : uint8_t {
  kNone, kResources, kPriority, kReservation, kNodeNotAvail, kDependency, kNeverSatisfied, kBeginTime, kHeld, kArrayTaskLimit,
  kGrpJobs, kMaxJobsUser, kGrpCpu, kGrpNode, kGrpGres, kMaxCpuUser, kMaxNodeUser, kMaxGresUser, kAssocMaxJobs,
  kAssocGrpJobs, kAssocGrpCpu, kAssocGrpNode, kAssocGrpGres, kMaxSubmit, kMaxJobsAccount, kMaxCpuAccount,
  kMaxNodeAccount, kMaxGresAccount, kMaxSubmitAccount
};
// Waiting for a limit, not for nodes.
inline bool is_limited(Reason reason) { return reason >= Reason::kArrayTaskLimit; }
// Not one that passes give all the time.
inline bool is_noted(Reason reason) { return reason > Reason::kPriority; }
constexpr const char* kReasonNames[] = {
    "None", "Resources", "Priority", "Reservation", "ReqNodeNotAvail", "Dependency", "DependencyNeverSatisfied", "BeginTime", "JobHeldUser",
    "JobArrayTaskLimit", "QOSGrpJobsLimit", "QOSMaxJobsPerUserLimit", "QOSGrpCpuLimit", "QOSGrpNodeLimit", "QOSGrpGRES",
    "QOSMaxCpuPerUserLimit", "QOSMaxNodePerUserLimit", "QOSMaxGRESPerUser", "AssocMaxJobsLimit",
    "AssocGrpJobsLimit", "AssocGrpCpuLimit", "AssocGrpNodeLimit", "AssocGrpGRES", "QOSMaxSubmitJobPerUserLimit",
    "MaxJobsPerAccount", "MaxCpuPerAccount", "MaxNodePerAccount", "MaxGRESPerAccount", "MaxSubmitJobsPerAccount"};

enum Tres { kTresCpus, kTresMemory, kTresNodes, kTresGpus, kTres };  // that PriorityWeightTRES knows

struct Params {
  bool linear = true, main = true, backfill = true, multifactor = true, favor_small = false, accrue_always = false,
       incr_only = false, defer = false, busy_nodes = false, one_reservation = false,
       small_relative_to_time = false, no_normal_tres = false, weighs_tres = false, time_min_extends = false;
  Time sched_interval = 60, batch_sched_delay = 3, sched_min_interval = 0;
  Time bf_interval = 30, bf_window = 86400, bf_resolution = 60;
  Time bf_window_linear = kNone, bf_cycle_us = kNone, calc_period = 300, max_age = 7 * 86400, limit_check = 30, requeue_delay = 121, kill_wait = 30;
  Time min_job_age = 300, over_time_limit = 0;
  int64_t queue_depth = 100, max_job_test = 500, node_space = 0;
  int64_t partition_depth = kNone, main_max_start = kNone;
  int64_t max_job_user = kNone, max_job_part = kNone, max_job_user_part = kNone, max_job_assoc = kNone;
  int64_t max_job_start = kNone, max_array_resv = 20, part_reserve = kNone, min_prio_reserve = 0;
  Time min_age_reserve = 0;
  // Whether backfill only looks at so many jobs of a kind.
  bool counts_jobs() const {
    return max_job_user != kNone || max_job_part != kNone || max_job_user_part != kNone || max_job_assoc != kNone;
  }
  // Whether nodes are not kept for all jobs that have to wait.
  bool keeps_few() const { return part_reserve != kNone || min_prio_reserve || min_age_reserve; }
  int64_t threads = 1;  // ThreadsPerCore
  bool idle_threads_count = true;
  int64_t weight_age = 0, weight_size = 0, weight_share = 0;
  double weight_tres[kTres] = {};
  bool max_tres = false, memory_is_consumable = false;
  double decay = 1;  // of fair-share usage in a second
};

struct Node {
  int64_t cpus, memory, gpus;
  double idle_w, busy_w;
};

enum Kind { kJobs, kNodes, kCpus, kGpus, kKinds };

enum Scope { kAll, kOfAccount, kOfUser, kScopes };  // whose use a limit of a QOS counts

// One limit of a QOS: how much of a kind may be in use.
struct QosLimit {
  int qos;
  Kind kind;
  Scope scope;
  int64_t most;
  Reason reason;
};

// How many jobs may be in the queue or run.
struct SubmitLimit {
  int qos;
  Scope scope;
  int64_t most;
  Reason reason;
};

// Limits of the QOS of a partition and of a job together: of a limit that both set, the partition's decides.
struct LimitSet {
  std::vector<int> counted;      // the QOS in which such a job counts
  std::vector<QosLimit> limits;  // in the order in which slurmctld looks
  bool own_max_jobs = false;     // MaxJobs of associations don't count
  bool group[kKinds] = {};       // whether a QOS limits all of its jobs together: such limits of associations don't count
  bool alike = true;             // they only count jobs, so that all jobs of a person stand alike
  std::vector<SubmitLimit> submit;
};

struct Partition {
  int64_t tier;
  double priority_part;
  Time over_time_limit;
  std::vector<uint64_t> nodes;
  int64_t tres[kTres] = {};  // of all its nodes
  double billing[kTres] = {};
};

struct Reservation {
  Time start, end;
  std::vector<uint64_t> nodes;
};

struct NodeChange {
  Time time;
  int node;
  enum Action : uint8_t { kDown, kDrain, kResume } action;
};

// As nodes.kinds.
struct NodeKind {
  int64_t weight;
  std::vector<uint64_t> nodes;
};

struct Config {
  Params params;
  std::vector<std::string> node_names, partition_names;
  std::vector<Node> nodes;
  std::vector<int64_t> node_cpus, node_memory;     // of each, all of them
  std::vector<NodeKind> kinds;
  std::vector<std::vector<uint64_t>> by_gpus;      // nodes that have so many GPUs
  std::vector<Partition> partitions;
  std::vector<double> qos_part, usage_factor;      // by QOS
  std::vector<LimitSet> limit_sets;                // by partition * qos + qos
  std::vector<Reservation> reservations;
  std::vector<NodeChange> node_changes;
  int64_t cpus = 0;                                // of all nodes
  Node least, most;                                // CPUs and GPUs that no node has less or more of
  bool alike() const { return least.cpus == most.cpus && least.gpus == most.gpus; }
  // Whether priorities depend on which nodes a job on whole nodes would get.
  bool sizes_vary() const { return params.multifactor && params.weight_size && least.cpus != most.cpus; }
  bool any_limit = false, any_group_limit = false, any_node_limit = false, any_submit_limit = false, draws_power = false;
  int qos_count() const { return static_cast<int>(qos_part.size()); }
};

// As resources.MemoryByCpu; memory 0: it is not by CPU.
struct MemoryByCpu {
  int64_t memory = 0, step = 1, task = 1;
  int64_t countable(int64_t cpus, int64_t free_memory) const {
    int64_t with_memory = free_memory / memory;
    cpus = std::min(cpus, with_memory - with_memory % step);
    return cpus - cpus % task;
  }
  bool operator==(const MemoryByCpu&) const = default;
};

// What is free on each node.
struct Free {
  const std::vector<int64_t>&cpus, &memory;
};

// The same, as far as it counts for a job.
struct Countable {
  const MemoryByCpu& by_cpu;
  const Free& free;
  int64_t operator[](int node) const { return by_cpu.countable(free.cpus[node], free.memory[node]); }
};

// What a job takes on each node; memory kNone: all that the node has.
struct Request {
  int64_t cpus, memory, gpus;
  bool whole;
  MemoryByCpu by_cpu;
  int64_t memory_of(const Node& node) const { return memory == kNone ? node.memory : memory; }
  bool operator==(const Request&) const = default;
};

// Jobs that can run on the same nodes with the same request.
struct Shape {
  int partition, request, reservation;  // reservation -1: none
  std::vector<uint64_t> suitable, listed;  // listed: also those with too few GPUs, as Cluster.listed
  bool operator==(const Shape&) const = default;
};

// A user in an account.
struct Person {
  int user;
  int64_t max_jobs;  // MaxJobs of the association; kNone: no limit
};

struct Dependency {
  enum Kind : uint8_t { kAfter, kAny, kOk, kNotOk } kind;
  bool failed;
  int64_t job_id;
  Time delay;
};

struct Dependencies {
  std::vector<Dependency> items;
  bool any_of = false;
};

// What few jobs have.
struct Extras {
  std::shared_ptr<const Dependencies> dependencies;
  std::shared_ptr<const void> origin;  // the Python object it was made of
  int64_t priority = kNone, throttle = kNone, nice = 0;
  int64_t array = kNone;  // the array's id; once in the catalogue, its index, or -1
  std::vector<int32_t> choices;  // its shapes, if it is in several partitions
  Time cancel = kNone, time_min = kNone;
};

struct Spec {
  int64_t job_id;
  Time submit, begin, limit, runtime;  // kNone: none
  int32_t nodes, shape, person, qos;
  int64_t cpus, memory, gpus;          // on each node
  int32_t extras = -1;
  bool held = false, requeue = true, failing = false;
};

// What runs at once, or may (kNone: no limit), by kind.
using Amounts = std::array<int64_t, kKinds>;

// One in the tree of accounts: an account (user < 0) or a person.
struct Member {
  int account = -1, person = -1, above = 0;  // above: the account that it is in
  int64_t shares = 1;
  std::vector<int> members;
  Amounts most = {kNone, kNone, kNone, kNone};             // of it and all below
};

// Everything jobs refer to by number. Copied before it grows, so that forks can share it.
struct Catalogue {
  std::vector<Request> requests;
  std::vector<Shape> shapes;
  std::vector<std::string> users;
  std::unordered_map<std::string, int> user_index;
  std::vector<Person> persons;
  std::unordered_map<std::string, int> person_index;  // "account\0user"
  std::unordered_map<int64_t, int> array_index;
  std::vector<std::vector<int32_t>> arrays;           // jobs of each, by their index
  std::vector<Member> members;                        // Fair Tree; the root first
  std::unordered_map<std::string, int> account_member;
  std::vector<int> member_of_person;
  std::unordered_map<std::string, std::string> parents;
  std::unordered_map<std::string, int64_t> max_jobs;  // "account\0user", or "account" alone
  bool gpus_differ = false;                           // some requests have GPUs, some have none
  bool any_whole = false;                             // some are for whole nodes

  // Copied and grown where a job brings something new.
  Catalogue();
  Catalogue(const Catalogue&);
  ~Catalogue();

  int request(const Request& wanted);
  // A shape with this request, -1: it is new; and the same, which may be added.
  int find_shape(Shape wanted, const Request& request) const;
  int shape(Shape wanted, const Request& asked);
  int account(const std::string& name);
  // The member that is the person's account.
  int account_of(int person) const { return members[member_of_person[person]].above; }
  // The person's member, its account's, and those above, until `stop` says so.
  template <typename Stop>
  void up_from(int person, Stop stop) const {
    int member = member_of_person[person];
    while (!stop(member) && member != 0) member = members[member].above;
  }
  static std::string key(const std::string& account, const std::string& user) { return account + '\0' + user; }
  int find_person(const std::string& account, const std::string& user) const;
  // A user who may use the cluster: known to Fair Tree from now on.
  int person(const std::string& account_name, const std::string& user);
};

// The jobs known from the beginning, shared by all forks.
struct Trace {
  std::vector<Spec> specs;
  std::vector<Extras> extras;
  std::vector<int32_t> by_submit;                    // the future ones, in the order in which they come
  std::unordered_map<int64_t, int32_t> by_id;        // empty if ids are first_id, first_id + 1, ...
  int64_t first_id = 1, next_id = 1;
  std::shared_ptr<const void> origins;               // Python's list of specs

  int32_t find(int64_t job_id) const {
    if (by_id.empty()) {
      int64_t index = job_id - first_id;
      return index >= 0 && index < static_cast<int64_t>(specs.size()) ? static_cast<int32_t>(index) : -1;
    }
    auto found = by_id.find(job_id);
    return found == by_id.end() ? -1 : found->second;
  }
};

// A job, or a run of it that was cut short, as slurmctld shows it.
struct Record {
  Time begin = kNone, start = kNone, end = kNone, limit = kNone, suspended = 0;
  int64_t ranges = 0;  // its nodes, in Engine::ranges_
  int32_t range_count = 0, job = -1, restarts = 0, dependencies = -1;
  // What priorities are calculated from, here and at the begin of Live, is close together.
  int64_t job_id = 0, priority = 0;
  Time submit = 0, eligible = kNone;
  int32_t nodes = 0;
  State state = State::kPending;
  Reason reason = Reason::kNone;
  uint8_t scheduler : 2 = 0, choice : 6 = 0;  // 1: main, 2: backfill; choice: which of its partitions
  bool held = false;
};

}  // namespace slurm_sim
