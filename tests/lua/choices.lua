-- choices.lua LIB FOLDER: reads FOLDER/cases, prints a choice a line. For tests/unit/routing/test_lua.py.
-- A line `table N` reads N.agents and N.state; `job NOW GPUS CPUS MIB NODES LIMIT ALLOWED` is decided on it (LIMIT 0:
-- none; ALLOWED: a,b), and the next job sees it where it was put. Then where it may go without agents, with other NODES
-- and a GPU TYPE, which stand at the line's end, and half the GPUs on each.

local T, D = dofile(arg[1] .. "/mirage_tables.lua"), dofile(arg[1] .. "/mirage_decide.lua")
local P = dofile(arg[1] .. "/mirage_places.lua")
local state, agents, checksum

local function whole(path)
    local file = assert(io.open(path, "rb"))
    local text = file:read("*a")
    file:close()
    return text
end

local function decided(words)
    local limit_s = tonumber(words[7])
    local job = {
        gpus = tonumber(words[3]),
        cpus = tonumber(words[4]),
        memory_mib = tonumber(words[5]),
        nodes = tonumber(words[6]),
        limit_s = limit_s > 0 and limit_s or nil,
    }
    local function allowed(name)
        return string.find("," .. words[8] .. ",", "," .. name .. ",", 1, true) ~= nil
    end
    local choice, shown = D.decide(state, agents, job, allowed), "-"
    if choice then
        choice.at_s = tonumber(words[2])
        D.correct(state, agents, choice)
        shown = string.format("%s %d %d", choice.names, choice.flavors[1] - 1, (choice.place or 0) - 1)
    end
    job.nodes = tonumber(words[9])
    job.gpus, job.gpu_type = math.floor(job.gpus / 2) * job.nodes, words[10] ~= "-" and words[10] or nil
    return shown .. " " .. (P.decide(state.places, job, allowed) or "-")
end

for line in io.lines(arg[2] .. "/cases") do
    local words = {}
    for word in string.gmatch(line, "%S+") do
        words[#words + 1] = word
    end
    if words[1] == "table" then
        agents, checksum = T.read_agents(whole(arg[2] .. "/" .. words[2] .. ".agents"))
        state = T.read_state(whole(arg[2] .. "/" .. words[2] .. ".state"))
        D.check(state, agents, checksum)
    else
        print(decided(words))
    end
end
