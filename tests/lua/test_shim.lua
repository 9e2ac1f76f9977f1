-- test_shim.lua LIB GOOD SCRATCH: the shim against a made-up slurmctld. GOOD has published files of two partitions,
-- A100 and V100, of which an idle A100 is preferred. Prints "ok NAME" a test, ends with an error at one that fails.

local LIB, GOOD, SCRATCH = arg[1], arg[2], arg[3]
local told, logged = {}, {}

local begin_s = os.time()
local now_s = begin_s
os.time = function() -- luacheck: ignore
    return now_s
end

slurm = { -- luacheck: ignore
    SUCCESS = 0,
    ERROR = -1,
    log_user = function(...)
        told[#told + 1] = string.format(...)
    end,
    log_error = function(...)
        logged[#logged + 1] = string.format(...)
    end,
}

local M = dofile(LIB .. "/mirage_routing.lua")
local PARTS = { A100 = { state_up = 3 }, V100 = { state_up = 3 } }

local function equal(found, expected, what)
    if found ~= expected then
        error((what or "value") .. ": " .. tostring(found) .. ", expected " .. tostring(expected), 2)
    end
end

-- As slurmctld 22.05 hands over `sbatch --gres=gpu:2 -c4 -t60`.
local function job(changes)
    local made = {
        script = "#!/bin/sh",
        tres_per_node = "gres:gpu:2",
        min_cpus = 4,
        cpus_per_task = 4,
        num_tasks = 4294967294,
        min_nodes = 4294967294,
        min_mem_per_node = 18446744073709551614,
        time_limit = 60,
        het_job_offset = 4294967294,
        priority = 4294967294,
        begin_time = 0,
    }
    for field, value in pairs(changes or {}) do
        made[field] = value
    end
    return made
end

local function whole(path)
    local file = assert(io.open(path, "rb"))
    local text = file:read("*a")
    file:close()
    return text
end

local function put(name, text)
    local file = assert(io.open(SCRATCH .. "/" .. name, "wb"))
    file:write(text)
    file:close()
end

-- A few seconds later: the shim looks at the files no more often.
local function publish(state, agents)
    now_s = now_s + 5
    put("routing.state", state or whole(GOOD .. "/routing.state"))
    put("routing.agents", agents or whole(GOOD .. "/routing.agents"))
end

local function submit(options, changes, parts)
    told, logged = {}, {}
    options.lib, options.run = options.lib or LIB, options.run or SCRATCH
    local made = job(changes)
    local outcome = M.router(options)(made, parts or PARTS)
    return made, outcome
end

local tests = {}

function tests.routes_a_job_without_a_partition()
    local made, outcome = submit({})
    equal(outcome, "routed")
    equal(made.partition, "A100")
    equal(made.comment, "routed_by=mirage")
    equal(made.req_nodes, nil)
    equal(told[1], "mirage: routed to partition A100")
end

function tests.keeps_the_users_comment()
    equal(submit({}, { comment = "mine" }).comment, "mine routed_by=mirage")
end

function tests.takes_gpus_however_asked_for()
    for _, asked in ipairs({
        { tres_per_node = "gres:gpu" },
        { tres_per_node = "gres/gpu:2" },
        { tres_per_node = "gpu:8" },
        { tres_per_job = "gres:gpu:4" },
        { tres_per_task = "gres/gpu=2", num_tasks = 4 },
    }) do
        local _, outcome = submit({}, asked)
        equal(outcome, "routed", asked.tres_per_node or asked.tres_per_job or asked.tres_per_task)
    end
end

function tests.leaves_alone_what_is_decided_already()
    for field, value in pairs({
        partition = "V100",
        reservation = "maint",
        features = "a100",
        prefer = "fast",
        req_nodes = "n1",
        exc_nodes = "n2",
        clusters = "other",
        dependency = "afterany:17",
        het_job_offset = 0,
        priority = 0,
        begin_time = os.time() + 3600,
        script = "",
        tres_per_node = "gres:gpu:a100:2,gres:gpu:v100:1",
        tres_per_socket = "gres:gpu:1",
        time_limit = 4294967295,
        comment = "mirage/1 chain=abcdefgh seg=1/5 mode=train ei=1 eo=1",
        min_mem_per_node = 999999999,
        mem_per_tres = "gres:gpu:100",
    }) do
        local made, outcome = submit({}, { [field] = value })
        equal(outcome, "left_alone", field)
        for name, before in pairs(job({ [field] = value })) do
            equal(made[name], before, field .. ": " .. name)
        end
        equal(#told + #logged, 0, field)
    end
end

function tests.the_marker_partition_is_no_decision()
    local made, outcome = submit({ marker = "auto" }, { partition = "auto" })
    equal(outcome, "routed")
    equal(made.partition, "A100")
end

function tests.goes_only_where_the_user_may()
    for _, rule in ipairs({
        { state_up = 1 },
        { allow_accounts = "physics,maths" },
        { deny_accounts = "chemistry" },
        { allow_qos = "high" },
        { deny_qos = "normal" },
        { max_time = 59 },
        { max_nodes = 0 },
    }) do
        local asking = { account = "chemistry", default_qos = "normal" }
        local made = submit({}, asking, { A100 = rule, V100 = { state_up = 3, allow_accounts = "chemistry" } })
        equal(made.partition, "V100", next(rule))
    end
    local made, outcome = submit({}, nil, { other = {} })
    equal(outcome, "left_alone")
    equal(made.partition, nil)
end

function tests.what_has_to_wait_goes_everywhere_the_user_may()
    local router = M.router({ lib = LIB, run = SCRATCH })
    local made
    for _ = 1, 5 do
        made = job({ tres_per_node = "gres:gpu:8" })
        router(made, PARTS)
    end
    equal(made.partition, "A100,V100")
    equal(told[#told], "mirage: routed to partition A100,V100")
    made = job({ tres_per_node = "gres:gpu:8" })
    router(made, { V100 = { state_up = 3 } })
    equal(made.partition, "V100", "only where the user may")
end

local function no_agents()
    publish(whole(GOOD .. "/places.state"))
end

function tests.without_agents_a_job_goes_everywhere_that_can_run_it()
    no_agents()
    equal(submit({}).partition, "V100,A100")
    equal(told[1], "mirage: routed to partition V100,A100; such jobs wait for 10 min")
    equal(submit({}, nil, { A100 = { state_up = 3 } }).partition, "A100")
end

function tests.what_agents_do_not_know_goes_by_places()
    for name, asked in pairs({
        ["a type"] = { tres_per_node = "gres:gpu:a100:2" },
        ["a type of one"] = { tres_per_node = "gres/gpu:a100" },
        ["a type with ="] = { tres_per_job = "gres/gpu:a100=4" },
    }) do
        equal(submit({}, asked).partition, "A100", name)
    end
    equal(submit({}, { array_inx = "1-9" }).partition, "V100,A100", "an array")
    equal(submit({}, { min_nodes = 2, tres_per_node = "gres:gpu:8", array_inx = "1" }).partition, "V100,A100")
    for _, asked in ipairs({ { tres_per_node = "gres:gpu:h100:2" }, { min_nodes = 3 }, { tres_per_node = "" } }) do
        equal(select(2, submit({}, asked)), "left_alone")
    end
end

function tests.a_job_that_names_a_partition_may_say_anywhere()
    no_agents()
    local made = submit({}, { partition = "debug,A100", comment = "mirage:anywhere" })
    equal(made.partition, "V100,A100,debug")
    equal(made.comment, "mirage:anywhere routed_by=mirage")
    equal(select(2, submit({}, { partition = "debug", comment = "anywhere" })), "left_alone")
end

function tests.the_server_of_a_job_that_names_its_partition()
    local options = { named = true }
    local made, outcome = submit(options, { partition = "V100" })
    equal(outcome, "routed")
    equal(made.partition, "V100")
    equal(made.req_nodes, "V100-1")
    equal(told[1], "mirage: routed to partition V100, server V100-1")
    made, outcome = submit(options, { partition = "V100", req_nodes = "V100-2" })
    equal(outcome, "left_alone")
    equal(made.req_nodes, "V100-2")
    for _, other in ipairs({ "debug", "A100,V100" }) do
        made, outcome = submit(options, { partition = other })
        equal(outcome, "left_alone", other)
        equal(made.req_nodes, nil, other)
    end
    equal(submit(options).req_nodes, nil, "of a job that names none")
end

function tests.a_job_that_waits_in_the_partition_it_names_is_left_alone()
    local router = M.router({ lib = LIB, run = SCRATCH, named = true })
    local outcomes, made = {}, nil
    for number = 1, 3 do
        made = job({ partition = "A100", tres_per_node = "gres:gpu:8" })
        outcomes[number] = router(made, PARTS)
    end
    equal(table.concat(outcomes, " "), "routed routed left_alone")
    equal(made.req_nodes, nil)
    equal(made.partition, "A100")
end

function tests.spreads_a_burst()
    local router = M.router({ lib = LIB, run = SCRATCH })
    local seen = {}
    for _ = 1, 4 do
        local made = job({ tres_per_node = "gres:gpu:8" })
        router(made, PARTS)
        seen[made.partition] = (seen[made.partition] or 0) + 1
    end
    equal(seen.A100, 2, "A100")
    equal(seen.V100, 2, "V100")
end

function tests.a_burst_counts_until_a_later_state()
    local router = M.router({ lib = LIB, run = SCRATCH })
    for _ = 1, 2 do
        router(job({ tres_per_node = "gres:gpu:8" }), PARTS)
    end
    publish(whole(GOOD .. "/same.state")) -- looked at no later than these jobs were routed
    local made = job({ tres_per_node = "gres:gpu:8" })
    router(made, PARTS)
    equal(made.partition, "V100")
    publish(whole(GOOD .. "/later.state")) -- looked at later, and says that all is free
    made = job({ tres_per_node = "gres:gpu:8" })
    router(made, PARTS)
    equal(made.partition, "A100")
end

local function is_unchanged(made, outcome, expected)
    equal(outcome, expected)
    for name, value in pairs(made) do
        equal(value, job()[name], name)
    end
    equal(#told, 0)
    equal(#logged, 1)
end

function tests.accepts_unchanged_what_it_can_not_decide()
    local state, agents = whole(GOOD .. "/routing.state"), whole(GOOD .. "/routing.agents")
    local nan = whole(GOOD .. "/nan.state")
    for name, files in pairs({
        half = { state:sub(1, #state - 20) },
        flipped = { (state:gsub("server A100%-1 1", "server A100-1 0")) },
        empty = { "" },
        other_format = { (state:gsub("state 3 ", "state 2 ", 1)) },
        no_word = { (state:gsub("place ", "room ", 1)) },
        nonsense = { string.rep("\0\255", 5000) },
        half_agents = { state, agents:sub(1, #agents - 100) },
        no_agents = { state, "" },
        nan_weights = { nan, whole(GOOD .. "/nan.agents") },
        other_agents = { nan },
    }) do
        publish(files[1], files[2])
        local made, outcome = submit({})
        if not pcall(is_unchanged, made, outcome, "errors") then
            error(name .. ": " .. outcome .. ", " .. table.concat(logged, "; "))
        end
    end
end

function tests.accepts_unchanged_without_a_table()
    os.remove(SCRATCH .. "/routing.state")
    local made, outcome = submit({})
    is_unchanged(made, outcome, "errors")
end

function tests.accepts_unchanged_when_the_daemon_is_dead()
    publish(whole(GOOD .. "/stale.state"))
    local made, outcome = submit({})
    is_unchanged(made, outcome, "stale")
    publish(whole(GOOD .. "/future.state"))
    made, outcome = submit({})
    is_unchanged(made, outcome, "stale")
end

function tests.tells_of_a_problem_once()
    os.remove(SCRATCH .. "/routing.state")
    told, logged = {}, {}
    local router = M.router({ lib = LIB, run = SCRATCH })
    for _ = 1, 3 do
        router(job(), PARTS)
        router(job({ partition = "V100" }), PARTS)
    end
    equal(#logged, 1)
    publish()
    equal(router(job(), PARTS), "routed")
    os.remove(SCRATCH .. "/routing.state")
    now_s = now_s + 5
    router(job(), PARTS)
    equal(#logged, 2)
end

function tests.looks_at_the_files_every_few_seconds()
    local opened, open = 0, io.open
    io.open = function(...) -- luacheck: ignore
        opened = opened + 1
        return open(...)
    end
    local router, again = M.router({ lib = LIB, run = SCRATCH }), 0
    for _ = 1, 3 do
        equal(router(job(), PARTS), "routed")
        again = opened
    end
    equal(again, 3, "files opened: the state twice, the agents")
    now_s = now_s + 5
    router(job(), PARTS)
    io.open = open -- luacheck: ignore
    equal(opened, 4)
end

function tests.reads_each_field_of_slurmctld_once()
    local seen, real = {}, job()
    local asked = setmetatable({}, {
        __index = function(_, field)
            seen[field] = (seen[field] or 0) + 1
            return real[field]
        end,
        __newindex = function(_, field, value)
            real[field] = value
        end,
    })
    equal(M.router({ lib = LIB, run = SCRATCH })(asked, PARTS), "routed")
    equal(real.partition, "A100")
    for field, times in pairs(seen) do
        equal(times, 1, field)
    end
    equal(seen.account, nil)
end

function tests.no_error_of_lua_gets_out()
    local broken = setmetatable({ script = "x" }, {
        __index = function()
            error("slurmctld's field")
        end,
    })
    told, logged = {}, {}
    equal(M.router({ lib = LIB, run = SCRATCH })(broken, PARTS), "errors")
    equal(select(2, submit({}, nil, 17)), "errors")
    slurm.log_error = nil
    equal(select(2, submit({ run = "/nowhere" })), "errors")
    slurm.log_error = function(...)
        logged[#logged + 1] = string.format(...)
    end
end

function tests.the_sites_own_script_comes_first()
    told, logged = {}, {}
    local function site(made)
        made.partition = made.partition or "site"
        return slurm.SUCCESS
    end
    local made = job()
    equal(M.wrap(site, { lib = LIB, run = SCRATCH })(made, PARTS, 0), slurm.SUCCESS)
    equal(made.partition, "site")
    local function refuses()
        return slurm.ERROR
    end
    made = job()
    equal(M.wrap(refuses, { lib = LIB, run = SCRATCH })(made, PARTS, 0), slurm.ERROR)
    equal(made.partition, nil)
end

function tests.without_its_files_the_site_goes_on()
    told, logged = {}, {}
    local made = job()
    equal(M.wrap(nil, { lib = "/nowhere", run = SCRATCH })(made, PARTS, 0), slurm.SUCCESS)
    equal(made.partition, nil)
    equal(#logged, 1)
end

function tests.counts_for_prometheus()
    local path = SCRATCH .. "/counts.prom"
    submit({ counters = path })
    equal(string.match(whole(path), 'outcome="routed"} (%d+)'), "1")
end

local names = {}
for name in pairs(tests) do
    names[#names + 1] = name
end
table.sort(names)
for _, name in ipairs(names) do
    now_s = begin_s
    publish()
    tests[name]()
    print("ok " .. name)
end
