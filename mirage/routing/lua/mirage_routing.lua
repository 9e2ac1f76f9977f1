-- The shim between slurmctld's job_submit/lua and mirage_decide.lua (docs/routing.md).
-- slurmctld waits while this runs, holding its locks: it reads two small files, opens no socket, never sleeps.
-- Whatever goes wrong, the job is accepted as it was submitted. Slurm 26.05 and later reject a job where the script
-- fails, so everything runs under pcall.

local M = {}

local NO_VAL, NO_VAL16, INFINITE = 4294967294, 65534, 4294967295
local LARGEST = 9007199254740992 -- what slurmctld hands over for an unset 64-bit field is above
local MOST_BYTES = 8388608
local LOOK_S = 5
local ANYWHERE = "mirage:anywhere" -- in the comment of a job that names a partition, and may go to others too
local UP = 3 -- PARTITION_SUBMIT and PARTITION_SCHED of slurm.h

-- --- what the job asks for ------------------------------------------------------------------------------------------

-- A number that the user gave, or nil.
local function given(value)
    if type(value) ~= "number" or value >= LARGEST or value == NO_VAL or value == NO_VAL16 then
        return nil
    end
    return value
end

local function is_set(text)
    return text ~= nil and text ~= ""
end

-- GPUs in a TRES text, and their type: "gres:gpu:2" (22.05), "gres/gpu:a100:2" (later), "gpu:2"; none: 0; anything
-- else: nil.
local function gpus_in(text)
    if not is_set(text) then
        return 0
    end
    local rest = string.match(text, "^gres[:/](.*)$") or text
    if rest == "gpu" then
        return 1
    end
    local count = tonumber(string.match(rest, "^gpu[:=](%d+)$"))
    if count then
        return count
    end
    local kind, many = string.match(rest, "^gpu:([^:=,]+)[:=]?(%d*)$")
    return kind and (tonumber(many) or 1), kind
end

-- GPUs of the whole job, and their type; nil: something else is asked for.
local function gpus_of(job, nodes, tasks)
    local per_job, of_job = gpus_in(job.tres_per_job)
    local per_node, of_node = gpus_in(job.tres_per_node)
    local per_task, of_task = gpus_in(job.tres_per_task)
    if not (per_job and per_node and per_task) then
        return nil
    end
    return math.max(per_job, per_node * nodes, per_task * tasks), of_job or of_node or of_task
end

local function memory_of(job, nodes, cpus)
    local per_node, per_cpu = given(job.min_mem_per_node), given(job.min_mem_per_cpu)
    return (per_node or 0) * nodes + (per_cpu or 0) * cpus
end

-- What a job asks for, in whole; nil: it is not one of those that are routed.
-- The table is the same each time: what is made again for each job, slurmctld's Lua has to collect.
local demand = {}

local function demand_of(job)
    local nodes = math.max(given(job.min_nodes) or 1, 1)
    local tasks = math.max(given(job.num_tasks) or 1, 1)
    local gpus, gpu_type = gpus_of(job, nodes, tasks)
    if not gpus or is_set(job.tres_per_socket) then
        return nil -- resources of which nothing is known
    end
    local minutes = given(job.time_limit)
    if minutes == INFINITE then
        return nil
    end
    demand.gpus, demand.gpu_type, demand.nodes, demand.limit_s = gpus, gpu_type, nodes, minutes and minutes * 60
    demand.cpus = math.max(given(job.min_cpus) or 1, tasks * (given(job.cpus_per_task) or 1))
    demand.memory_mib = memory_of(job, nodes, demand.cpus)
    return demand
end

local DECIDED = { -- fields with which a user, or the site, has decided where or when
    "reservation",
    "features",
    "prefer",
    "req_nodes",
    "exc_nodes",
    "clusters",
    "dependency",
    "mem_per_tres",
}

-- Whether somebody has decided about a job already, or it is none that is routed. Reading a field takes slurmctld
-- about a microsecond (it compares names one by one), and the script is copied: so that comes last.
local function left_alone(job, comment, now_s)
    if given(job.het_job_offset) or given(job.priority) == 0 or (given(job.begin_time) or 0) > now_s then
        return true
    elseif comment and string.match(comment, "^mirage/1 ") then
        return true -- a link of a chain: all go to one partition
    end
    for index = 1, #DECIDED do
        if is_set(job[DECIDED[index]]) then
            return true
        end
    end
    return not is_set(job.script) -- interactive
end

-- --- where it may go ------------------------------------------------------------------------------------------------

local function is_in(list, name)
    for item in string.gmatch(list, "[^,]+") do
        if item == name then
            return true
        end
    end
    return false
end

-- `field`: what the lists are of, "account" or "qos". The job's is looked at only if there is a list.
local function lets_in(allowed, denied, job, field)
    local is_listed = is_set(allowed) and string.upper(allowed) ~= "ALL"
    if not is_listed and not is_set(denied) then
        return true
    end
    local name = job[field] or job["default_" .. field]
    if is_listed and not (name and is_in(allowed, name)) then
        return false
    end
    return not (is_set(denied) and (not name or is_in(denied, name)))
end

-- asked: a demand, with the job, `parts`: the partitions that the user may use, as slurmctld hands them over, and the
-- partition that the job names, if it does.
local function may_use(name, asked)
    if asked.named and asked.named ~= name then
        return false
    end
    local part, job = asked.parts[name], asked.job
    if not part or (part.state_up or UP) ~= UP then
        return false
    end
    local most_min, most_nodes = given(part.max_time), given(part.max_nodes)
    return lets_in(part.allow_accounts, part.deny_accounts, job, "account")
        and lets_in(part.allow_qos, part.deny_qos, job, "qos")
        and not (most_min and asked.limit_s and asked.limit_s > most_min * 60)
        and not (most_nodes and asked.nodes > most_nodes)
end

-- --- what is published ----------------------------------------------------------------------------------------------

local Reader = {}
Reader.__index = Reader

local function whole(path)
    local file = io.open(path, "rb")
    if not file then
        error("no " .. path, 0)
    end
    local text = file:read(MOST_BYTES)
    file:close()
    return text or ""
end

-- The first bytes have the checksum: while they stay, the file is the one that was read.
local function first_bytes(path)
    local file = io.open(path, "rb")
    if not file then
        error("no " .. path, 0)
    end
    local head = file:read(64)
    file:close()
    return head or ""
end

-- Reads what is new. Raises an error, always the same one until a new state is published. The files are looked at every
-- few seconds only: opening one costs as much as a fifth of a decision.
function Reader:refresh(now_s)
    local since_s = now_s - (self.looked_s or 0)
    if since_s >= LOOK_S or since_s < 0 then
        self.looked_s = now_s
        self:look()
    end
    if self.problem then
        error(self.problem, 0)
    end
end

function Reader:look()
    local path = self.run .. "/routing.state"
    local found, head = pcall(first_bytes, path)
    if not found then
        self.head, self.problem = nil, head
    elseif head ~= self.head then
        self.head, self.state, self.problem = head, nil, nil
        local good, problem = pcall(self.read, self, path)
        self.problem = not good and tostring(problem) or nil
        self.is_new = good
    end
end

function Reader:read(path)
    local state = self.tables.read_state(whole(path))
    if state.agents == 0 then
        self.agents, self.checksum, self.routed = {}, 0, {}
    elseif state.agents ~= self.checksum then
        self.agents, self.checksum = self.tables.read_agents(whole(self.run .. "/routing.agents"))
        self.routed = {}
    end
    self.decide.check(state, self.agents, self.checksum)
    local kept = {}
    for _, routed in ipairs(self.routed) do
        if routed.at_s >= state.at_s then
            kept[#kept + 1] = routed
            self.decide.correct(state, self.agents, routed)
        end
    end
    self.routed, self.state = kept, state
end

function Reader:note(choice, now_s)
    choice.at_s = now_s
    self.routed[#self.routed + 1] = choice
    self.decide.correct(self.state, self.agents, choice)
end

-- --- one submission -------------------------------------------------------------------------------------------------

local function change(job, comment, words, names, server)
    job.partition = names
    if server then
        job.req_nodes = server
    end
    job.comment = is_set(comment) and comment .. " routed_by=mirage" or "routed_by=mirage"
    slurm.log_user("mirage: routed to partition %s", names .. words)
    return "routed"
end

-- The agents' choice for a job without a GPU type that is no array; nil: they know no such job.
local function by_agents(reader, asked, now_s)
    if #reader.agents == 0 or asked.gpus == 0 or asked.gpu_type or is_set(asked.job.array_inx) then
        return nil
    end
    local choice = reader.decide.decide(reader.state, reader.agents, asked, may_use)
    if choice then
        reader:note(choice, now_s)
    end
    return choice
end

-- The server, within the partition that the job names, that the paper's agents choose.
local function to_server(reader, asked, comment, now_s)
    local choice = by_agents(reader, asked, now_s)
    local index = choice and choice.partitions[1]
    if not choice or not choice.place or reader.agents[index].flavors[choice.flavors[1]].servers > 1 then
        return "left_alone" -- that it waits in its partition is what its user has said
    end
    local server = reader.state.partitions[index].servers[choice.place].name
    return change(asked.job, comment, ", server " .. server, asked.named, server)
end

-- The names of both lists, without those of the second that are in the first.
local function joined(names, more)
    for name in string.gmatch(more or "", "[^,]+") do
        names = is_in(names, name) and names or names .. "," .. name
    end
    return names
end

-- Where a job goes that leaves its partition open, or names some beside `mirage:anywhere`.
local function to_places(reader, asked, comment, named, now_s)
    local choice = not named and by_agents(reader, asked, now_s)
    if choice then
        return change(asked.job, comment, "", choice.names)
    end
    local names, wait_s = reader.places.decide(reader.state.places, asked, may_use)
    if not names then
        return "left_alone"
    end
    local words = ""
    if wait_s then
        words = "; such jobs " .. (wait_s < 60 and "start at once" or "wait for " .. math.ceil(wait_s / 60) .. " min")
    end
    return change(asked.job, comment, words, joined(names, named))
end

-- What became of it: "routed", "left_alone", "stale". What most jobs are left alone for is looked at first.
local function route(reader, options, job, parts)
    local partition, comment = job.partition, job.comment
    local named = is_set(partition) and partition ~= options.marker and partition or nil
    local is_open = not named or is_set(comment) and string.find(comment, ANYWHERE, 1, true)
    if not is_open and not options.named then
        return "left_alone"
    end
    local asked, now_s = demand_of(job), os.time()
    if not asked or left_alone(job, comment, now_s) then
        return "left_alone"
    end
    reader:refresh(now_s)
    if reader.decide.is_stale(reader.state, now_s) then
        return "stale"
    end
    asked.job, asked.parts, asked.named = job, parts, not is_open and named or nil
    if is_open then
        return to_places(reader, asked, comment, named, now_s)
    end
    return to_server(reader, asked, comment, now_s)
end

-- For node_exporter's textfile collector; written once a published state, not with each job.
local function write_counts(path, counts)
    local lines = { "# TYPE mirage_routing_jobs_total counter\n" }
    for _, outcome in ipairs({ "routed", "left_alone", "stale", "errors" }) do
        lines[#lines + 1] = string.format('mirage_routing_jobs_total{outcome="%s"} %d\n', outcome, counts[outcome])
    end
    local file = io.open(path .. ".new", "wb")
    if file then
        file:write(table.concat(lines))
        file:close()
        os.rename(path .. ".new", path)
    end
end

-- Logs a problem, once and not with each job, and writes the counts.
local function tell(reader, options, problem, is_left_alone)
    if problem and problem ~= reader.reported then
        slurm.log_error("mirage: jobs are accepted as submitted: %s", problem)
    end
    if not is_left_alone then
        reader.reported = problem
    end
    if options.counters and reader.is_new then
        write_counts(options.counters, reader.counts)
        reader.is_new = false
    end
end

-- A function that routes a job and returns what became of it. It raises no error.
-- options: lib (folder of these files), run (folder that the daemon publishes to), marker (a partition whose jobs
-- are routed too), named (true: the paper's agents choose the server of jobs that name one of the partitions),
-- counters (file for Prometheus).
function M.router(options)
    local reader = setmetatable({ run = options.run, routed = {} }, Reader)
    reader.tables = dofile(options.lib .. "/mirage_tables.lua")
    reader.decide = dofile(options.lib .. "/mirage_decide.lua")
    reader.places = dofile(options.lib .. "/mirage_places.lua")
    reader.counts = { routed = 0, left_alone = 0, stale = 0, errors = 0 }
    return function(job, parts)
        local good, outcome = pcall(route, reader, options, job, parts)
        local problem = not good and tostring(outcome) or outcome == "stale" and "the published state is stale" or nil
        outcome = good and outcome or "errors"
        reader.counts[outcome] = reader.counts[outcome] + 1
        pcall(tell, reader, options, problem, outcome == "left_alone")
        return outcome
    end
end

-- The site's slurm_job_submit (or nil), with routing after it: what the site sets or refuses stays as it is.
function M.wrap(site, options)
    local good, router = pcall(M.router, options)
    if not good then
        slurm.log_error("mirage: no routing: %s", tostring(router))
        return site or function()
            return slurm.SUCCESS
        end
    end
    return function(job, parts, uid)
        local result = slurm.SUCCESS
        if site then
            result = site(job, parts, uid)
        end
        if result == slurm.SUCCESS then
            router(job, parts)
        end
        return result
    end
end

return M
