-- The routing decision: functions from what mirage_tables.lua reads to a choice. No input, no output, no clock.
-- `mirage/routing/decide.py` is the reference; both must choose the same in every case. So sums are made in the same
-- order, and nothing but + - * / and comparisons is used. Runs on Lua 5.1 (slurmctld's on Debian 12) to 5.4.

local M = {}

local CLOCK_S = 60
local QUEUE_UNIT = 8
local QUEUE_PART = 4
local HUGE = 1e300
local BLOCK, OF_JOB = 10, 2

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
    if not agent.has_actions then
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
            or #partition.queued ~= #agent.flavors or #partition.waits ~= #agent.flavors then
            error("partition " .. partition.name .. " is not as its agent knows it", 0)
        end
        if agent.variant == "choice" and agent.layers[1].inputs ~= BLOCK * #agents + OF_JOB then
            error("agent of " .. agent.name .. ": trained with another number of partitions", 0)
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

-- Starts a job where it was placed; false: there is no room any more, or it has no place.
local function start_job(partition, agent, flavor, place, end_s)
    if place and flavor.servers > 1 and all_have_room(partition, flavor) then
        for index = 1, #partition.servers do
            take(partition, agent, index, flavor, end_s)
        end
        return true
    elseif place and flavor.servers == 1 and has_room(partition.servers[place], flavor) then
        take(partition, agent, place, flavor, end_s)
        return true
    end
    return false
end

-- Puts a job into the state that was routed at routed.at_s: where it was placed, or into the queues.
function M.correct(state, agents, routed)
    local first = routed.partitions[1]
    local flavor = agents[first].flavors[routed.flavors[1]]
    if start_job(state.partitions[first], agents[first], flavor, routed.place, routed.at_s + routed.limit_s) then
        return
    end
    for number_of, index in ipairs(routed.partitions) do
        local partition, chosen = state.partitions[index], routed.flavors[number_of]
        local limit_s = math.floor(routed.limit_s / #routed.partitions)
        partition.queued[chosen] = partition.queued[chosen] + 1
        partition.queued_s = partition.queued_s + agents[index].flavors[chosen].gpus * limit_s
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

-- What an agent with actions sees: free GPUs, CPUs and memory of each server; returns how many features there are.
local function features(partition, seen)
    local n = 0
    for _, server in ipairs(partition.servers) do
        local free, total = server.free, server.total
        seen[n + 1], seen[n + 2], seen[n + 3] = free[1] / total[1], free[2] / total[2], free[3] / total[3]
        n = n + 3
    end
    return n
end

local function queued_work(partition, longest_s)
    local unit_s = longest_s / QUEUE_PART
    return math.min(partition.queued_s / partition.gpus, unit_s) / unit_s
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

-- All layers but the last: what its outputs begin with, and how many inputs are set for it.
local function evaluate(agent, seen, size)
    local layers = agent.layers
    local start, count = layers[1].bias, set_inputs(layers[1], seen, size)
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

local function check_finite(value, agent)
    if value ~= value or value > HUGE or value < -HUGE then
        error("agent of " .. agent.name .. ": a value is not a finite number", 0)
    end
    return value
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

-- The highest value of what a partition can do with a job now, and the place; nil: it waits.
local function judge(partition, agent, chosen)
    local flavor, last = agent.flavors[chosen], agent.layers[#agent.layers]
    local start, count = evaluate(agent, agent.seen, features(partition, agent.seen))
    local best, where
    if flavor.servers == 1 then
        best, where = best_server(partition, flavor, last, start, count)
    elseif all_have_room(partition, flavor) then
        best, where = value_of(last, start, count, flavor.first), 1
    end
    best = best or value_of(last, start, count, flavor.queue)
    return check_finite(best, agent), where
end

-- The partitions that a job fits in: their numbers, and its flavour in each. Made again for each job: it is kept.
local function fits_of(agents, job, allowed)
    local partitions, flavors = {}, {}
    for index = 1, #agents do
        local flavor = flavor_of(agents[index], job)
        if flavor and allowed(agents[index].name, job) then
            partitions[#partitions + 1], flavors[#flavors + 1] = index, flavor
        end
    end
    return partitions, flavors
end

-- A choice: first to the partition with this number in the list, if there is one, then to the others, if `others`.
local function choice_of(partitions, flavors, first, place, others)
    local chosen = { partitions = { partitions[first] }, flavors = { flavors[first] }, place = place }
    for number_of = 1, others and #partitions or 0 do
        if number_of ~= first then
            chosen.partitions[#chosen.partitions + 1] = partitions[number_of]
            chosen.flavors[#chosen.flavors + 1] = flavors[number_of]
        end
    end
    return chosen
end

-- Whether a job of this flavour would start now: there is room, and nobody waits.
local function may_start(partition, flavor, rooms)
    for index = 1, #partition.queued do
        if partition.queued[index] > 0 then
            return false
        end
    end
    if flavor.servers > 1 then
        return all_have_room(partition, flavor)
    end
    return rooms > 0
end

local function by_actions(state, agents, partitions, flavors)
    local highest, best, where
    for number_of, index in ipairs(partitions) do
        local value, place = judge(state.partitions[index], agents[index], flavors[number_of])
        if not highest or value > highest then
            highest, best, where = value, number_of, place
        end
    end
    return choice_of(partitions, flavors, where and best or 1, where, not where)
end

-- What all agents see of a partition, from seen[n + 1] on, if the job has this flavour there.
local function set_block(seen, n, partition, agent, chosen)
    local flavor, many, longest_s = agent.flavors[chosen], #partition.servers, agent.longest_s
    local jobs, unit = 0, QUEUE_UNIT * many / 2
    for index = 1, #partition.queued do
        jobs = jobs + partition.queued[index]
    end
    seen[n + 1] = 1
    seen[n + 2] = partition.rooms[chosen] / many
    seen[n + 3] = may_start(partition, flavor, partition.rooms[chosen]) and 1 or 0
    seen[n + 4] = partition.free_gpus / partition.gpus
    seen[n + 5] = least_of(partition.nexts) / longest_s
    seen[n + 6] = least_of(partition.lasts) / longest_s
    seen[n + 7] = partition.lasts_s / many / longest_s
    seen[n + 8] = math.min(jobs, unit) / unit
    seen[n + 9] = queued_work(partition, longest_s)
    seen[n + 10] = within(partition.waits[chosen], longest_s) / longest_s
end

local blocks = {} -- what all agents see, and, behind it, what one sees of the job

local function set_blocks(state, agents, partitions, flavors)
    for index = 1, BLOCK * #agents do
        blocks[index] = 0
    end
    for number_of, index in ipairs(partitions) do
        set_block(blocks, BLOCK * (index - 1), state.partitions[index], agents[index], flavors[number_of])
    end
    return BLOCK * #agents
end

-- What a job gains by being kept off the partition with this number.
local function gain_of(agent, chosen, n, limit_s)
    local flavor, last = agent.flavors[chosen], agent.layers[#agent.layers]
    blocks[n + 1] = within(limit_s or flavor.limit_s, agent.longest_s) / agent.longest_s
    blocks[n + 2] = flavor.gpus / agent.flavors[#agent.flavors].gpus
    local start, count = evaluate(agent, blocks, n + OF_JOB)
    return check_finite(value_of(last, start, count, 1), agent)
end

-- Each agent may keep the job off its partition where it expects a gain, the largest first; it goes to all others.
local function by_gain(state, agents, partitions, flavors, limit_s)
    while #partitions > 1 do
        local n, most, worst = set_blocks(state, agents, partitions, flavors), 0, nil
        for number_of, index in ipairs(partitions) do
            local value = gain_of(agents[index], flavors[number_of], n, limit_s)
            if value > most then
                most, worst = value, number_of
            end
        end
        if not worst then
            break
        end
        table.remove(partitions, worst)
        table.remove(flavors, worst)
    end
    return choice_of(partitions, flavors, 1, nil, true)
end

-- Where a job goes: { partitions, flavors, place, limit_s, names }: numbers from 1 (place nil: it waits), and the
-- partitions' names with commas; nil: nowhere that it may go has a flavour.
-- job: gpus, cpus, memory_mib, nodes, limit_s (nil: the flavour's). allowed: a function of a partition's name and job.
function M.decide(state, agents, job, allowed)
    local partitions, flavors = fits_of(agents, job, allowed)
    if #partitions == 0 then
        return nil
    end
    local choice
    if agents[1].has_actions then
        choice = by_actions(state, agents, partitions, flavors)
    else
        choice = by_gain(state, agents, partitions, flavors, job.limit_s)
    end
    local names = {}
    for number_of, index in ipairs(choice.partitions) do
        names[number_of] = agents[index].name
    end
    choice.names = table.concat(names, ",")
    choice.limit_s = job.limit_s or agents[choice.partitions[1]].flavors[choice.flavors[1]].limit_s
    return choice
end

return M
