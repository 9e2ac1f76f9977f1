// A simulation, as in the reference (tests/reference). Its functions are in engine.inl (begin, time), commands.inl (what
// users and operators do), events.inl (what happens to jobs and nodes), resources.inl (what is taken, limits), order.inl (the
// queue's order), main_pass.inl and backfill.inl. Each begins with what it may touch. Three members have files of their own:
// Clock (when the schedulers run), Usage (what limits count) and Skips (what later passes may leave out).
//
// A fork copies an Engine: a handful of flat vectors about jobs that are pending or running, and shared logs.
#pragma once
#include <algorithm>
#include <compare>
#include <queue>

#include "clock.hpp"
#include "core.hpp"
#include "nodeset.hpp"
#include "plan.hpp"
#include "shared_log.hpp"
#include "skips.hpp"
#include "usage.hpp"

namespace slurm_sim {

// Whether only a simulation knows that it will come to this.
inline bool only_foreseen(Happening kind) {
  return kind == Happening::kEnd || kind == Happening::kNode || kind == Happening::kCancel || kind == Happening::kSubmit;
}

// A job in the queue or on nodes. Begins on a cache line, so that what priorities are calculated from is in few of them.
struct alignas(64) Live : Record {
  int32_t shape = 0, person = 0, partition = 0, qos = 0;
  Time accrues = kNone;           // when it was first eligible: its age counts from then, also if it was held since
  double size_part = 0, asked_size_part = 0;  // of its priority, and before the first recalculation
  bool own_priority = false;      // it was given one
  bool nice = false;              // something is taken off its priority
  bool watched : 1 = false;       // a dependency asks for it
  bool several : 1 = false;       // it is in several partitions
  bool flexible : 1 = false;      // backfill may shorten its limit (--time-min)
  Reason noted = Reason::kNone;   // the last reason that note_reasons noted
  int32_t array = -1, place = -1;  // place: in `waiting`, -1: competing
  uint32_t started = 0;           // order of starts
  Time runtime_end = kNone;       // by itself
  Time suspended_since = kNone;
  uint64_t end_event = 0, limit_event = 0;  // the events that count; others are out of date
};
static_assert(sizeof(Live) == 3 * 64);  // forks copy them

struct Event {
  Time time;
  uint64_t order;  // kind, then sequence number
  int32_t subject;
  Happening kind() const { return static_cast<Happening>(order >> 56); }
  uint64_t sequence() const { return order & ((uint64_t{1} << 56) - 1); }
  bool operator>(const Event& o) const { return time != o.time ? time > o.time : order > o.order; }
};

template <int W>
struct Run {
  Time end;  // by its limit
  int64_t job_id;
  int32_t slot, request;
  NodeSet<W> nodes;
  bool operator<(const Run& o) const { return end != o.end ? end < o.end : job_id < o.job_id; }
};

// A competing job: what passes ask of it first, side by side. One in several partitions is there once for each.
struct Queued {
  Time limit;
  int32_t slot, nodes, shape;
};

// Where a competing job stands: the smaller comes first.
struct Rank {
  int64_t outside, tier, priority;  // outside: of a reservation; the others negative, as more comes first
  Time submit;
  int64_t job_id;
  int choice;
  auto operator<=>(const Rank&) const = default;
};

// What a job would use if it started.
template <int W>
struct Use {
  Amounts amounts;
  const NodeSet<W>* where = nullptr;  // null: none of its nodes are known to be in use already
};

// The competing jobs of a shape.
struct Demand {
  int32_t jobs = 0, least_nodes = INT32_MAX;  // least_nodes: none asks for less
};

template <int W>
class Engine final : public Core {
  using Set = NodeSet<W>;

 public:
  Engine(std::shared_ptr<const Config>, std::shared_ptr<const Trace>, std::shared_ptr<const Catalogue>, Time start);
  std::unique_ptr<Core> fork() override {
    auto twin = std::unique_ptr<Engine>(new Engine(*this));
    twin->news_wanted = twin->busy = false;
    twin->news_.clear();
    twin->skips_.plan = 0;
    return twin;
  }
  void enter_due() override;

  Time now() const override { return clock_.now; }
  Time next_event() override { return due().time; }
  bool advance(Time time, int64_t steps) override;
  Time run_until_start(int64_t job_id, Time latest) override;
  void put_in(Time now, const std::vector<Placed>& jobs, const std::vector<int>& down, const Timers* timers) override;
  Timers timers() const override { return clock_.timers(); }
  int64_t submit(Submission& job) override;
  void check_new(Time submit, int64_t job_id) const override;
  void cancel(int64_t job_id) override;
  void requeue(int64_t job_id) override;
  void drop_dependency(int64_t job_id) override;
  void hold(int64_t job_id) override;
  void release(int64_t job_id) override;
  void set_runtime_end(int64_t job_id, Time end) override;
  void forget_future() override;
  void suspend(int64_t job_id) override;
  void resume(int64_t job_id) override;
  void resize(int64_t job_id, int64_t nodes) override;
  void check_resizable(int64_t job_id) const override;
  void change_node(int node, NodeChange::Action action) override;
  Record job(int64_t job_id) const override;
  std::vector<Record> in_state(State state) const override;
  int64_t finished_count() const override { return finished_.size(); }
  Record finished(int64_t index) const override { return finished_[index]; }
  int64_t cut_short_count() const override { return cut_short_.size(); }
  Record cut_short(int64_t index) const override { return cut_short_[index]; }
  std::vector<Outage> outages() const override { return outages_; }
  std::vector<Range> ranges(const Record& record) const override;
  const Dependencies* dependencies(const Record& r) const override {
    return r.dependencies < 0 ? nullptr : dependency_log_[r.dependencies].get();
  }
  const Spec& spec(int32_t job) const override {
    auto known = static_cast<int32_t>(trace->specs.size());
    return job < known ? trace->specs[job] : *more_specs_[job - known].spec;
  }
  const Extras* extras(const Spec& spec) const override;
  int32_t job_count() const override { return static_cast<int32_t>(trace->specs.size() + more_specs_.size()); }
  Record record_of(int32_t job) const override;
  bool is_competing(int64_t job_id) const override;
  bool is_up(int node) const override { return up_.has(node); }
  bool is_idle(int node) const override { return up_.has(node) && idle_.has(node); }
  int idle_nodes() const override { return (up_ & idle_).count(); }
  int up_nodes() const override { return up_.count(); }
  void observe(const Watch& watch, Sight& sight) const override {
    bool anew = sight.look != looks_ || changed_.too_many;
    auto see = [&](int32_t slot) {
      const Live& job = lives_[slot];
      Role as = !watch.counts(job.partition, job.job_id)   ? Role::kNot
                : job.state == State::kRunning             ? Role::kRunning
                : job.state != State::kPending             ? Role::kNot
                : job.place >= 0 || is_limited(job.reason) ? Role::kNot
                                                           : Role::kQueued;
      Time since = as == Role::kNot ? watch.origin : as == Role::kRunning ? job.start : job.eligible;
      sight.see(slot, as, job.nodes, static_cast<int32_t>(since - watch.origin), job.limit, anew);
    };
    // A limit's reason takes a job out of sight without a change of the queue.
    if (anew || config->any_limit || special_ > 0) {
      if (anew) sight.forget();
      for (const Queued& job : queue_)
        if (is_first_choice(job)) see(job.slot);
      for (int32_t slot : fresh_) see(slot);
    }
    if (anew) {
      for (const Run<W>& run : running_) see(run.slot);
      sight.sort();
    } else {
      for (int i = 0; i < changed_.count; i++) see(changed_.slots[i]);
    }
    changed_ = {};
    sight.look = ++looks_;
    Set pool = set_of(watch.nodes);
    sight.idle = (up_ & idle_ & pool).count();
    sight.up = (up_ & pool).count();
  }
  double energy() override {
    account_energy();
    return energy_;
  }
  std::vector<News> take_news() override { return std::exchange(news_, {}); }

 private:
  struct Added {
    std::shared_ptr<const Spec> spec;
    std::shared_ptr<const Extras> extras;
  };
  struct Due {
    Time time;
    Happening kind;
  };
  // Slots of jobs that came into the queue or on nodes, left them, or changed in there.
  struct Changed {
    static constexpr int kMost = 30;
    int count = 0;
    bool too_many = false;
    int32_t slots[kMost];
    void add(int32_t slot) {
      if (count == kMost) too_many = true;
      else slots[count++] = slot;
    }
  };
  struct Scratch;
  struct Backfill;
  friend struct Scratch;

  Engine(const Engine&) = default;

  const Params& params() const { return config->params; }
  Set set_of(const std::vector<uint64_t>& words) const {
    Set set = Set::none();
    std::copy(words.begin(), words.end(), set.word);
    return set;
  }

  // ---- events
  Due due();
  void happen(const Due& next);
  void happen(Happening kind);
  void job_event(const Event& event);
  uint64_t push(Time time, Happening kind, int32_t subject);
  void skip_quiet_passes(Time until);
  void skip_passes_without_news(Time end);

  // ---- jobs
  int32_t find(int64_t job_id) const;  // its index, or -1
  int32_t index_of(int64_t job_id) const;
  Live& live_in(int64_t job_id, State state);
  int32_t slot_of(int32_t job) const { return where_.get(job) - 1; }  // < 0: not submitted yet, or over
  int32_t new_live(int32_t job);
  void tie(int32_t slot);
  void admit(int32_t slot);
  void enter(int32_t job);
  void put_on_nodes(int32_t slot, const Placed& item);
  void put_in_queue(int32_t slot, const Placed& item);
  void queued(int32_t slot);
  void review(int32_t slot);
  void review_all();
  Reason kept_back_by(Live& job);
  void set_reason(Live& job, Reason reason) {
    job.reason = reason;
    unnoted_ = unnoted_ || (is_noted(reason) && reason != job.noted);
  }
  bool note_reasons();
  int verdict(const Dependency& dependency) const;
  bool review_dependencies(Live& job, Reason& reason);
  void touched(const Live& job) {
    if (job.watched || (watch_arrays_ && job.array >= 0)) dependency_news_ = true;
  }
  void to_waiting(int32_t slot);
  void leave_waiting(int32_t slot);
  void forget_pending(int32_t slot);
  void compete(int32_t slot);
  void count_special(const Live& job, int sign) {
    special_ += sign * (job.array >= 0 || shape(job).reservation >= 0 || job.several);
    several_ += sign * job.several;
  }
  void no_longer_competes(const Live& job);
  void start_job(int32_t slot, const Set& nodes, uint8_t scheduler);
  void watch_limit(int32_t slot);
  Time over_time_limit(const Live& job) const { return config->partitions[job.partition].over_time_limit; }
  Time killed_at(const Live& job) const;
  Time overdue_end(const Live& job) const;
  State own_end(const Live& job) const;
  void end_at(int32_t slot, Time end);
  void end_by_itself(int32_t slot);
  void kill(int32_t slot, State state);
  void cancel_slot(int32_t slot);
  void requeue_slot(int32_t slot, State state);
  void vacate(int32_t slot);
  void finish(int32_t slot, State state, Reason reason = Reason::kNone);
  void tell(bool is_start, const Record& record) {
    if (news_wanted) news_.push_back({is_start, record});
  }
  void node_action(int node, NodeChange::Action action);

  // ---- what is taken
  const Shape& shape(const Live& job) const { return catalogue->shapes[job.shape]; }
  const Request& request(const Live& job) const { return catalogue->requests[shape(job).request]; }
  void take(const Set& nodes, const Request& request, int sign);
  void run_begins(int32_t slot, const Set& nodes);
  Set run_ends(int32_t slot);
  Run<W>& run_of(const Live& job);
  void put_ranges(Live& job, const Set& nodes);
  Set nodes_of(const Record& job) const;
  std::string names(const Set& nodes) const;
  void count_use(const Live& job, const Set& nodes, int sign);
  // On each of its nodes, if it does not get whole ones.
  int64_t counted_cpus(const Live& job) const {
    return params().idle_threads_count ? request(job).cpus : spec(job.job).cpus;
  }
  Amounts use_of_nodes(const Live& job, const Set& nodes) const;
  Use<W> use_to_start(const Live& job, const Set& nodes) const { return {use_of_nodes(job, nodes), &nodes}; }
  Use<W> use_planned(const Live& job, const Set& nodes) const;
  Use<W> use_by(const Live& job, const Node& each, bool planned) const;
  Set possible(const Live& job) const;
  double billing(const Live& job, const Amounts& amounts) const;
  // Whether it is known what it would use before its nodes are, and no attempt to start it leaves traces.
  bool use_is_known(const Live& job) const {
    bool too_few = some_want_too_many_ && set_of(shape(job).suitable).count() < job.nodes;
    return !leaves_traces() && !shares_nodes() && (config->alike() || !request(job).whole) && !too_few;
  }
  const LimitSet& limit_set(const Live& job) const {
    return config->limit_sets[job.partition * config->qos_count() + job.qos];
  }
  template <typename Do>
  void for_each_use(const Live& job, Do act) {
    for (int qos : limit_set(job).counted)
      for (Scope scope : {kAll, kOfAccount, kOfUser}) act(usage_.of(*config, *catalogue, qos, scope, job.person));
  }
  Reason limit_reached(const Live& job, const Use<W>& use) const;
  Reason jobs_limit_reached(const Live& job) const;
  Reason resources_limit_reached(const Live& job, const Use<W>& use) const;
  Reason qos_limit_reached(const Live& job, bool of_jobs, const Use<W>& use) const;
  Reason group_limit_reached(const Live& job, bool of_jobs, const Use<W>& use) const;
  // Whether a start would go over the limit; one that adds nothing does not. `occupied()`: nodes that the limit counts.
  template <typename Occupied>
  bool exceeds(int64_t used, int64_t most, const Use<W>& use, Kind kind, Occupied occupied) const {
    int64_t more = use.amounts[kind];
    if (kind == kNodes && shares_nodes()) {
      Set nodes = occupied();
      used = nodes.count();
      more -= use.where ? (*use.where & nodes).count() : 0;
    }
    return more > 0 && used + more > most;
  }
  template <typename Of>
  Set occupied(Of of) const;
  Set occupied(const QosLimit& limit, int person) const;
  Set occupied(int member) const;
  // Whether jobs of the same limit may share nodes, which count once.
  bool shares_nodes() const { return config->any_node_limit && (!params().linear || !suspended_.empty()); }
  bool max_jobs_reached(const Live& job) const;
  bool throttled(const Live& job) const;
  // Nodes on which there is room for it now.
  const Set& hosts(int request) const { return catalogue->requests[request].whole ? idle_ : fits_[request]; }
  void note_fit(int request, int first, int length);
  Set pick(const Set& from, int count, const Request& request, const Free& has, bool starts, bool later = false) const;
  Free free_now() const { return {free_cpus_, free_memory_}; }
  Free all_empty() const { return {config->node_cpus, config->node_memory}; }
  Set lightest(const Set& free) const;
  Set lightest_kinds(const Set& free, int count) const;
  Set taken(int reservation, Time from, Time to) const;
  Time first_reserved(int reservation, const Set& nodes, Time until) const;
  // The limit with which backfill plans the job.
  Time least_limit(const Live& job) const {
    Time limit = job.limit == kNone ? kYear : job.limit;
    return job.flexible ? std::min(limit, extras(spec(job.job))->time_min) : limit;
  }
  bool is_open(int reservation, Time time) const {
    return config->reservations[reservation].start <= time && time <= config->reservations[reservation].end;
  }
  Set more_nodes(const Live& job, int64_t count);
  void account_energy() {
    energy_ += power_ * static_cast<double>(clock_.now - energy_of_);
    energy_of_ = clock_.now;
  }
  double power() const;

  // ---- the order of the queue
  // Whether a calculation may change the priority of a job.
  bool priorities_move() const {
    const Params& p = params();
    return !future_forgotten_ && p.multifactor && (p.weight_age || p.weight_size || usage_.fairshare.on);
  }
  int64_t priority_of(const Live& job, Time calculated) { return priority_of(job, calculated, share_part(job.person, calculated)); }
  int64_t priority_of(const Live& job, Time calculated, double share_part) const;
  double share_part(int person, Time calculated) {
    return usage_.fairshare.on ? static_cast<double>(params().weight_share) * usage_.fairshare.factor(*catalogue, person, calculated) : 0.0;
  }
  // As it is recalculated.
  void set_priority(Live& job, int64_t calculated) const {
    bool may_fall = !params().incr_only || !params().multifactor || job.several;
    job.priority = may_fall ? calculated : std::max(job.priority, calculated);
  }
  void give_priority(Live& job);
  void recalculate(Time calculated);
  double size_part(const Live& job, int64_t cpus) const;
  void count_tests();
  double tres_part(const Live& job) const;
  void set_size_parts(Live& job) const {
    int64_t asked = job.nodes * spec(job.job).cpus, of_equal_nodes = job.nodes * config->cpus / std::ssize(config->nodes);
    job.asked_size_part = size_part(job, asked);
    job.size_part = size_part(job, params().linear && !config->sizes_vary() ? of_equal_nodes : asked);
  }
  Rank rank(const Live& job) const {
    return {shape(job).reservation < 0, -config->partitions[job.partition].tier, -job.priority, job.submit, job.job_id, job.choice};
  }
  Rank rank(const Queued& turn) {
    takes_turn(turn);
    return rank(lives_[turn.slot]);
  }
  bool before(int32_t a, int32_t b) const { return rank(lives_[a]) < rank(lives_[b]); }
  void order_queue(Time within_us);
  void forget_started() {
    std::erase_if(queue_, [this](const Queued& job) {
      return job.slot < 0 || (lives_[job.slot].several && lives_[job.slot].state != State::kPending);
    });
  }

  // ---- jobs in several partitions
  // Of each of its partitions, the shape.
  template <typename Do>
  void for_each_choice(const Live& job, Do act) const {
    if (!job.several) return act(job.shape);
    for (int32_t shape : extras(spec(job.job))->choices) act(shape);
  }
  bool is_first_choice(const Queued& job) const {
    const Live& live = lives_[job.slot];
    return !live.several || job.shape == spec(live.job).shape;
  }
  void look_in(Live& job, int choice) {
    job.shape = job.several ? extras(spec(job.job))->choices[choice] : spec(job.job).shape;
    job.partition = catalogue->shapes[job.shape].partition;
    job.choice = static_cast<uint8_t>(choice);
  }
  // Whether it still waits; if so, it is in the partition of this turn from now on, with its priority there.
  bool takes_turn(const Queued& turn) { return !lives_[turn.slot].several || take_turn(turn); }
  bool take_turn(const Queued& turn) {
    Live& job = lives_[turn.slot];
    if (job.state != State::kPending) return false;
    const std::vector<int32_t>& choices = extras(spec(job.job))->choices;
    look_in(job, static_cast<int>(std::find(choices.begin(), choices.end(), turn.shape) - choices.begin()));
    job.priority = priority_of(job, ordered_for_);
    return true;
  }
  // After a pass: they show their first partition again.
  void settle() {
    if (!several_) return;
    for (const Queued& job : queue_)
      if (lives_[job.slot].several && is_first_choice(job)) takes_turn(job);
  }
  // Of an array whose tasks are given up in a partition; -1: no array.
  int32_t array_here(const Live& job) const {
    return job.array < 0 ? -1 : job.array * static_cast<int32_t>(config->partitions.size()) + job.partition;
  }

  // ---- when the schedulers run
  void changed() {
    clock_.main_wanted = clock_.review_wanted = true;
    clock_.news_for_backfill(params());
  }
  void disturb() { skips_.disturb(thorough); }
  void purge_until(Time now);
  Time cycle_us();
  int64_t most_tested();
  void main_pass();
  void backfill_pass();
  void note_news(const Scratch& room);
  bool first_tells_news(Scratch& room);
  bool gets_reason(Scratch& room, const Live& job) const;
  bool idle_nodes_wanted() const;

  // ---- the passes
  // How many jobs a main pass looks at: Slurm counts before it compares, so it is one more than the depth.
  int64_t main_depth(bool full) const { return full ? kNever - 1 : params().queue_depth + 1; }
  bool run_main(bool full);
  bool mark_rest(size_t stopped_at, size_t looked_at);
  Set fitting(const Live& job, const Set& kept, Reason& why);
  Reason known_limit(Scratch& room, const Live& job) const;
  void waits_for(Live& job, Reason reason);
  bool is_out_of_reach(const Live& job, const Set& kept) const;
  Reason missing(const Live& job, const Set& open, const Set& kept) const;
  // Whether it matters to later passes what attempts and tests leave behind: with select/cons_tres, if there are limits of
  // nodes, or jobs with GPUs and others; and if each test tells a size.
  bool leaves_traces() const {
    return (!params().linear && (catalogue->gpus_differ || config->any_node_limit)) || sizes_by_nodes();
  }
  // A job's size counts with the CPUs that it would hold where a test last found room for it. With select/linear and equal
  // nodes they are known; where nodes differ each test tells.
  bool sizes_by_tests() const {
    const Params& p = params();
    return p.multifactor && p.weight_size && (p.linear ? config->sizes_vary() : catalogue->any_whole || p.threads > 1);
  }
  bool sizes_by_nodes() const { return config->sizes_vary() && sizes_by_tests(); }
  // With equal nodes the first test tells, if the job would hold more than it asks for; of one in several partitions each,
  // as it may get whole nodes in some.
  bool awaits_test(const Live& job) const {
    if (config->sizes_vary() || !sizes_by_tests()) return false;
    return job.several || (held_cpus(job) != spec(job.job).cpus && !tested_cpus(&job - lives_.data()));
  }
  // On each of its nodes, all of which are equal.
  int64_t held_cpus(const Live& job) const { return request(job).whole ? config->least.cpus : counted_cpus(job); }
  void note_tested(const Live& job, int64_t cpus);
  int64_t tested_cpus(size_t slot) const { return slot < tested_cpus_.size() ? tested_cpus_[slot] : 0; }
  void note_test(const Live& job, const Set& nodes);
  void forget_test(int32_t slot) {
    if (static_cast<size_t>(slot) < tested_cpus_.size()) tested_cpus_[slot] = 0;
  }
  void no_longer_suspended(int32_t slot);
  // With select/linear they are busy, unless a suspended job has them, and matter only if nodes differ.
  bool has_preferences() const {
    return config->any_node_limit && (!params().linear || config->kinds.size() > 1 || !suspended_.empty());
  }
  Set preferred(const Live& job) const;
  void tested_at_submission(const Live& job);
  void attempt(const Set& nodes, const Set& preferred);
  void tested(const Set& nodes, int request);
  // Whether it may start now but have no nodes kept for it: bf_min_age_reserve, bf_min_prio_reserve.
  bool has_no_claim(const Live& job) const {
    const Params& p = params();
    return (p.multifactor && job.priority < p.min_prio_reserve) || clock_.now - job.eligible < p.min_age_reserve;
  }
  bool backfill_is_quiet(Scratch& room, bool& go_on);
  bool seen_before();
  static Scratch& scratch();

  Clock clock_;
  Skips<W> skips_;
  Usage usage_;
  uint64_t sequence_ = 0;
  uint32_t starts_ = 0;
  std::vector<Event> events_;     // a heap
  int32_t next_submit_ = 0;       // in trace->by_submit
  bool future_forgotten_ = false;  // jobs run until their limits, and keep their priorities

  std::vector<Live> lives_;
  std::vector<int32_t> spare_, fresh_, waiting_, unmarked_;
  int32_t waiting_unheld_ = 0;    // of waiting_
  bool unnoted_ = false;          // a pending job may have a reason that is not noted yet
  std::vector<Queued> queue_;
  int64_t queue_changes_ = 0;     // of the competing jobs
  int64_t counted_ = 0, counted_of_ = -1;  // how many of them limits let a backfill pass look at, as of so many changes
  Time ordered_for_ = kNone;      // which calculation of priorities the order is of
  Time tests_counted_for_ = kNone;  // up to which one sizes are as tests have told
  int64_t ordered_shares_ = 0;    // and which of fair shares
  int64_t lowest_ = kTopPriority; // priority that priority/basic has given
  bool order_changed_ = false;
  Time next_begin_ = kNever;      // no begin time of a waiting job comes before
  bool dependency_news_ = false, watch_arrays_ = false;
  int32_t delayed_ = 0;           // dependencies with a delay were seen
  int32_t special_ = 0;           // competing jobs of arrays, in reservations, or in several partitions,
  int32_t several_ = 0;           // and of the latter alone
  std::vector<Demand> demand_;    // by shape
  std::vector<int32_t> competing_of_;  // by partition

  Set up_, idle_;
  std::vector<Run<W>> running_;
  mutable Changed changed_;       // since the last look of an observer,
  mutable int64_t looks_ = 0;     // which were so many
  std::vector<int32_t> suspended_;
  std::vector<int64_t> free_cpus_, free_memory_, free_gpus_;  // only with select/cons_tres
  Set shared_;                    // nodes without a job that has the whole node
  Traces<W> traces_;
  bool some_want_too_many_ = false;   // a state's jobs may ask for more nodes than there are for them
  bool untested_ = false;             // somebody in the queue may be, whose size a test will tell
  std::vector<int64_t> tested_cpus_;  // by slot, if they tell its size; 0: not tested yet
  std::vector<int32_t> jobs_on_;
  std::vector<Set> fits_;         // by request
  double energy_ = 0, power_ = 0;
  Time energy_of_;
  std::vector<Outage> outages_;

  SharedLog<int32_t, 6> where_;   // by job: 0 not submitted, slot + 1, or -1 - place in finished_
  SharedLog<Record, 3> finished_, cut_short_;
  SharedLog<Range> ranges_;
  SharedLog<std::shared_ptr<const Dependencies>> dependency_log_;
  SharedLog<Added> more_specs_;
  SharedLog<std::pair<int64_t, int32_t>> more_ids_;       // ascending
  std::vector<std::pair<int64_t, int32_t>> odd_ids_;      // that came out of order
  int64_t next_id_;
  std::vector<News> news_;
};

}  // namespace slurm_sim
