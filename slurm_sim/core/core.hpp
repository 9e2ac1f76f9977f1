// What the bindings see of a simulation, whatever the cluster's size.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "model.hpp"
#include "nodeset.hpp"
#include "observe.hpp"

namespace slurm_sim {

// A job as it is submitted from outside, before it is put into the catalogue.
struct Submission {
  Spec spec;  // shape, person: not yet
  Extras extras;
  Shape shape;
  Request request;
  std::vector<std::pair<Shape, Request>> others;  // in its other partitions
  std::string account, user, dependency;  // dependency: as it was written
};

struct News {
  bool is_start;
  Record record;
};

struct Outage {
  int node;
  Time start, end;
};

// A job of a state in which a simulation begins, see state.py.
struct Placed {
  int32_t job;
  Time start, submit, eligible;  // start kNone: it is in the queue
  Reason reason;
  std::vector<uint64_t> nodes;
};

// What the times of the passes depend on; put_off, main_due, backfill_due kNever: not due.
struct Timers {
  Time last_main, last_full, last_pass, put_off;
  bool put_off_full;
  Time last_backfill_us, main_due, backfill_due;
  bool main_wanted, review_wanted, planned;
};

class Core {
 public:
  virtual ~Core() = default;
  virtual std::unique_ptr<Core> fork() = 0;

  virtual Time now() const = 0;
  virtual Time next_event() = 0;  // kNever: nothing will happen
  // Until everything due up to and at this time (kNever: ever) has happened, or, with `news_wanted`, there is news. Takes
  // at most so many steps; false if that was not enough.
  virtual bool advance(Time time, int64_t steps) = 0;
  void run_until(Time time) { advance(time, INT64_MAX); }
  // When the job started: goes on until it has, or is over, until this time, or, with `news_wanted`, there is news.
  virtual Time run_until_start(int64_t job_id, Time latest) = 0;

  virtual void enter_due() = 0;  // the jobs that are submitted as the simulation begins
  // Makes a new simulation one that is in this state. `timers` null: all periods begin now.
  virtual void put_in(Time now, const std::vector<Placed>& jobs, const std::vector<int>& down, const Timers* timers) = 0;
  virtual Timers timers() const = 0;

  virtual int64_t submit(Submission& job) = 0;
  virtual void check_new(Time submit, int64_t job_id) const = 0;
  virtual void cancel(int64_t job_id) = 0;
  virtual void requeue(int64_t job_id) = 0;
  virtual void drop_dependency(int64_t job_id) = 0;
  virtual void hold(int64_t job_id) = 0;
  virtual void release(int64_t job_id) = 0;
  virtual void set_runtime_end(int64_t job_id, Time end) = 0;
  virtual void forget_future() = 0;
  virtual void suspend(int64_t job_id) = 0;
  virtual void resume(int64_t job_id) = 0;
  virtual void resize(int64_t job_id, int64_t nodes) = 0;
  virtual void check_resizable(int64_t job_id) const = 0;
  virtual void change_node(int node, NodeChange::Action action) = 0;

  virtual Record job(int64_t job_id) const = 0;
  virtual std::vector<Record> in_state(State state) const = 0;  // pending, running or suspended; by id
  virtual int64_t finished_count() const = 0;
  virtual Record finished(int64_t index) const = 0;
  virtual int64_t cut_short_count() const = 0;
  virtual Record cut_short(int64_t index) const = 0;
  virtual std::vector<Outage> outages() const = 0;
  virtual std::vector<Range> ranges(const Record& record) const = 0;
  virtual const Dependencies* dependencies(const Record& record) const = 0;
  virtual const Spec& spec(int32_t job) const = 0;
  virtual const Extras* extras(const Spec& spec) const = 0;
  virtual int32_t job_count() const = 0;
  virtual Record record_of(int32_t job) const = 0;  // record.job -1: not submitted yet
  virtual bool is_competing(int64_t job_id) const = 0;
  virtual bool is_up(int node) const = 0;
  virtual bool is_idle(int node) const = 0;
  virtual int idle_nodes() const = 0;
  virtual int up_nodes() const = 0;
  virtual void observe(const Watch& watch, Sight& sight) const = 0;  // jobs: only if they are others
  virtual double energy() = 0;
  virtual std::vector<News> take_news() = 0;

  bool news_wanted = false;
  bool thorough = false;  // work out each pass, also those that are known to change nothing: a check of that knowledge
  bool busy = false;  // it runs without the interpreter's lock; set and read with it
  std::shared_ptr<const Config> config;
  std::shared_ptr<const Trace> trace;
  std::shared_ptr<const Catalogue> catalogue;
};

std::unique_ptr<Core> make_core(std::shared_ptr<const Config>, std::shared_ptr<const Trace>,
                                std::shared_ptr<const Catalogue>, Time start);

}  // namespace slurm_sim
