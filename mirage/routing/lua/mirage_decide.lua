-- The routing decision: functions from what mirage_tables.lua reads to a choice. No input, no output, no clock.
-- `mirage/routing/decide.py` is the reference; both must choose the same in every case. So sums are made in the same
-- order, and nothing but + - * / and comparisons is used. Runs on Lua 5.1 (slurmctld's on Debian 12) to 5.4.

local M = {}

local CLOCK_S = 60
local QUEUE_UNIT = 8
local QUEUE_PART = 4
local HUGE = 1e300

-- --- a state for its agents -----------------------------------------------------------------------------------------

local function has_room(server, flavor)
    local free, each = server.free, flavor.each
    return server.up and free[1] >= each[1] and free[2] >= each[2] and free[3] >= each[3]
end

local function within(seconds, most_s)
    return seconds <= 0 and 0 or seconds < most_s and seconds or most_s
end

-- Adds a server to what is counted of its partition, or takes it out (sign -1).
local function count_in(partition, agent, index, sign)
    local server, rooms = partition.servers[index], partition.rooms
    for number_of, flavor in ipairs(agent.flavors) do
        if has_room(server, flavor) then
            rooms[number_of] = rooms[number_of] + sign
        end
    end
    local next_s, last_s = agent.longest_s, agent.longest_s -- of a server that is down
    if server.up then
        partition.free_gpus = partition.free_gpus + sign * server.free[1]
        next_s = within(server.next_end_s - partition.at_s, agent.longest_s)
        last_s = within(server.last_end_s - partition.at_s, agent.longest_s)
    end
    partition.nexts[index], partition.lasts[index] = next_s, last_s
    partition.lasts_s = partition.lasts_s + sign * last_s
end

local function prepare(partition, agent, at_s)
    partition.at_s, partition.gpus = at_s, 0
    for _, server in ipairs(partition.servers) do
        partition.gpus = partition.gpus + server.total[1]
    end
    if agent.variant == "counts" then
        partition.rooms, partition.nexts, partition.lasts = {}, {}, {}
        partition.free_gpus, partition.lasts_s = 0, 0
        for index = 1, #agent.flavors do
            partition.rooms[index] = 0
        end
        for index = 1, #partition.servers do
            count_in(partition, agent, index, 1)
        end
    end
end

-- Makes a state ready for these agents. Raises an error if they are not of each other.
function M.check(state, agents, checksum)
    if state.agents ~= checksum or #state.partitions ~= #agents then
        error("the state is for other agents", 0)
    end
    for index, agent in ipairs(agents) do
        local partition = state.partitions[index]
        if partition.name ~= agent.name or #partition.servers ~= agent.servers
            or #partition.queued ~= #agent.flavors then
            error("partition " .. partition.name .. " is not as its agent knows it", 0)
        end
        prepare(partition, agent, state.at_s)
    end
end

function M.is_stale(state, now_s)
    local age_s = now_s - state.at_s
    return age_s > state.valid_s or age_s < -CLOCK_S
end

-- --- what was routed since -------------------------------------------------------------------------------------------

local function all_have_room(partition, flavor)
    local servers = partition.servers
    for index = 1, #servers do
        if not has_room(servers[index], flavor) then
            return false
        end
    end
    return true
end

local function take(partition, agent, index, flavor, end_s)
    local server, each = partition.servers[index], flavor.each
    if partition.rooms then
        count_in(partition, agent, index, -1)
    end
    local free = server.free
    free[1], free[2], free[3] = free[1] - each[1], free[2] - each[2], free[3] - each[3]
    if server.next_end_s == 0 or end_s < server.next_end_s then
        server.next_end_s = end_s
    end
    server.last_end_s = math.max(server.last_end_s, end_s)
    if partition.rooms then
        count_in(partition, agent, index, 1)
    end
end

-- Puts a job into the state that was routed at routed.at_s: where it was placed, or into the queue.
function M.correct(state, agents, routed)
    local partition, agent = state.partitions[routed.partition], agents[routed.partition]
    local flavor, place, end_s = agent.flavors[routed.flavor], routed.place, routed.at_s + routed.limit_s
    partition.is_summed = false
    if place and flavor.servers > 1 and all_have_room(partition, flavor) then
        for index = 1, #partition.servers do
            take(partition, agent, index, flavor, end_s)
        end
    elseif place and flavor.servers == 1 and has_room(partition.servers[place], flavor) then
        take(partition, agent, place, flavor, end_s)
    else
        partition.queued[routed.flavor] = partition.queued[routed.flavor] + 1
        partition.queued_s = partition.queued_s + flavor.gpus * routed.limit_s
    end
end

-- --- the choice -----------------------------------------------------------------------------------------------------

local function least_of(values)
    local least = values[1]
    for index = 2, #values do
        if values[index] < least then
            least = values[index]
        end
    end
    return least
end

-- Three kinds of features begin a partition's; each function returns how many there are.
local begin = {}

function begin.paper(partition, _, seen)
    local n = 0
    for _, server in ipairs(partition.servers) do
        local free, total = server.free, server.total
        seen[n + 1], seen[n + 2], seen[n + 3] = free[1] / total[1], free[2] / total[2], free[3] / total[3]
        n = n + 3
    end
    return n
end

function begin.ours(partition, agent, seen)
    local n, longest_s = begin.paper(partition, agent, seen), agent.longest_s
    for _, server in ipairs(partition.servers) do
        seen[n + 1] = within(server.next_end_s - partition.at_s, longest_s) / longest_s
        seen[n + 2] = within(server.last_end_s - partition.at_s, longest_s) / longest_s
        n = n + 2
    end
    return n
end

function begin.counts(partition, agent, seen)
    local rooms, many, longest_s = partition.rooms, agent.servers, agent.longest_s
    local n = #rooms
    for index = 1, n do
        seen[index] = rooms[index] / many
    end
    seen[n + 1] = partition.free_gpus / partition.gpus
    seen[n + 2] = least_of(partition.nexts) / longest_s
    seen[n + 3] = least_of(partition.lasts) / longest_s
    seen[n + 4] = partition.lasts_s / many / longest_s
    return n + 4
end

-- What an agent sees of its partition, whatever the job is.
local function features(partition, agent)
    local seen, queued = agent.seen, partition.queued
    local n = begin[agent.variant](partition, agent, seen)
    if agent.variant == "paper" then
        return seen
    end
    local unit = agent.variant == "counts" and QUEUE_UNIT * agent.servers / 2 or QUEUE_UNIT
    for index = 1, #queued do
        seen[n + index] = math.min(queued[index], unit) / unit
    end
    local unit_s = agent.longest_s / QUEUE_PART
    seen[n + #queued + 1] = math.min(partition.queued_s / partition.gpus, unit_s) / unit_s
    return seen
end

-- Sets layer.values to the inputs that count, and layer.rows to the weights that belong to them; how many.
local function set_inputs(layer, inputs, size)
    local rows, values, weights, count = layer.rows, layer.values, layer.weights, 0
    for index = 1, size do
        local value = inputs[index]
        if value ~= 0 then
            count = count + 1
            rows[count], values[count] = weights[index], value
        end
    end
    return count
end

-- The same behind a hidden layer: ReLU.
local function set_positive(layer, inputs)
    local rows, values, weights, count = layer.rows, layer.values, layer.weights, 0
    for index = 1, layer.inputs do
        local value = inputs[index]
        if value > 0 then
            count = count + 1
            rows[count], values[count] = weights[index], value
        end
    end
    return count
end

-- An output begins with what `start` has for it, then takes the inputs that are set in turn. Four outputs at once,
-- because slurmctld waits: this is faster than one by one.
local function add_up(layer, start, count, made)
    local rows, values, outputs = layer.rows, layer.values, layer.outputs
    for first = 1, outputs, 4 do
        local i, j, k, l = first, first + 1, first + 2, first + 3
        if l > outputs then -- the last ones once more
            i, j, k, l = math.max(outputs - 3, 1), math.max(outputs - 2, 1), math.max(outputs - 1, 1), outputs
        end
        local a, b, c, d = start[i], start[j], start[k], start[l]
        for number_of = 1, count do
            local row, value = rows[number_of], values[number_of]
            a = a + row[i] * value
            b = b + row[j] * value
            c = c + row[k] * value
            d = d + row[l] * value
        end
        made[i], made[j], made[k], made[l] = a, b, c, d
    end
    return made
end

-- What the first layer adds up of a partition. It is kept until a job is routed there: most of an evaluation.
local function sums_of(partition, agent)
    local layer = agent.layers[1]
    if not partition.is_summed then
        local count = set_inputs(layer, features(partition, agent), agent.of_partition)
        add_up(layer, layer.bias, count, agent.sums)
        partition.is_summed = true
    end
    return agent.sums
end

-- Sets the first layer's inputs to the job's: its flavour and its limit.
local function set_job(agent, chosen, limit_s)
    local layer, n = agent.layers[1], agent.of_partition
    if agent.variant == "paper" then
        return 0
    end
    local left = within(limit_s or agent.flavors[chosen].limit_s, agent.longest_s) / agent.longest_s
    layer.rows[1], layer.values[1] = layer.weights[n + chosen], 1
    layer.rows[2], layer.values[2] = layer.weights[n + #agent.flavors + 1], left
    return left ~= 0 and 2 or 1
end

-- All layers but the last: what its outputs begin with, and how many inputs are set for it.
local function evaluate(partition, agent, chosen, limit_s)
    local layers, start = agent.layers, sums_of(partition, agent)
    local count = set_job(agent, chosen, limit_s)
    for number_of = 1, #layers - 1 do
        local layer, after = layers[number_of], layers[number_of + 1]
        count, start = set_positive(after, add_up(layer, start, count, layer.made)), after.bias
    end
    return start, count
end

local function value_of(last, start, count, action)
    local sum, rows, values = start[action], last.rows, last.values
    for number_of = 1, count do
        sum = sum + rows[number_of][action] * values[number_of]
    end
    return sum
end

-- Number of the smallest flavour that covers a job; nil: it does not fit here.
local function flavor_of(agent, job)
    for index, flavor in ipairs(agent.flavors) do
        if job.gpus <= flavor.gpus and job.cpus <= flavor.cpus and job.memory_mib <= flavor.memory_mib
            and job.nodes <= flavor.servers and (not job.limit_s or job.limit_s <= flavor.limit_s) then
            return index
        end
    end
    return nil
end

-- Of the servers with room the one with the fewest free GPUs.
local function tightest(partition, flavor)
    local servers, least, found = partition.servers, nil, nil
    for place = 1, #servers do
        local gpus = servers[place].free[1]
        if (not least or gpus < least) and has_room(servers[place], flavor) then
            least, found = gpus, place
        end
    end
    return found
end

-- The highest of the servers with room, and its place.
local function best_server(partition, flavor, last, start, count)
    local best, where
    for place = 1, #partition.servers do
        if has_room(partition.servers[place], flavor) then
            local value = value_of(last, start, count, flavor.first + place - 1)
            if not best or value > best then
                best, where = value, place
            end
        end
    end
    return best, where
end

-- The highest value of what a partition can do with a job now, and the place (0: to be looked for); nil: it waits.
local function judge(partition, agent, chosen, limit_s)
    local flavor, last = agent.flavors[chosen], agent.layers[#agent.layers]
    local start, count = evaluate(partition, agent, chosen, limit_s)
    local best, where
    if flavor.servers > 1 then
        if all_have_room(partition, flavor) then
            best, where = value_of(last, start, count, flavor.first), 1
        end
    elseif not partition.rooms then
        best, where = best_server(partition, flavor, last, start, count)
    elseif partition.rooms[chosen] > 0 then
        best, where = value_of(last, start, count, flavor.first), 0
    end
    best = best or value_of(last, start, count, flavor.queue)
    if best ~= best or best > HUGE or best < -HUGE then
        error("agent of " .. agent.name .. ": a value is not a finite number", 0)
    end
    return best, where
end

local fits = {} -- numbers of the partitions that a job fits in

local function names_of(agents, chosen, count)
    local names = agents[chosen].name
    for number_of = 1, count do
        if fits[number_of] ~= chosen then
            names = names .. "," .. agents[fits[number_of]].name
        end
    end
    return names
end

-- Where a job goes: { partition, flavor, place, limit_s, names }, numbers from 1; nil: nowhere that it may go has a
-- flavour. names: if it has to wait, all the partitions that it fits in, the chosen one first, with commas.
-- job: gpus, cpus, memory_mib, nodes, limit_s (nil: the flavour's). allowed: a function of a partition's name and job.
function M.decide(state, agents, job, allowed)
    local highest, chosen, chosen_flavor, chosen_place
    local count = 0
    for index = 1, #agents do
        local agent = agents[index]
        local flavor = flavor_of(agent, job)
        if flavor and allowed(agent.name, job) then
            count = count + 1
            fits[count] = index
            local value, place = judge(state.partitions[index], agent, flavor, job.limit_s)
            if not highest or value > highest then
                highest, chosen, chosen_flavor, chosen_place = value, index, flavor, place
            end
        end
    end
    if not chosen then
        return nil
    end
    local flavor = agents[chosen].flavors[chosen_flavor]
    if chosen_place == 0 then
        chosen_place = tightest(state.partitions[chosen], flavor)
    end
    local limit_s = job.limit_s or flavor.limit_s
    local names = not chosen_place and names_of(agents, chosen, count) or nil
    return { partition = chosen, flavor = chosen_flavor, place = chosen_place, limit_s = limit_s, names = names }
end

return M
