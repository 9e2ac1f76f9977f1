-- The routing decision: functions from texts and numbers to a choice. No input, no output, no clock.
-- `mirage/routing/decide.py` is the reference; both must choose the same in every case. So sums are made in the same
-- order, and nothing but + - * / and comparisons is used. Runs on Lua 5.1 (slurmctld's on Debian 12) to 5.4.

local M = {}

M.FORMAT = 1
local CLOCK_S = 60
local QUEUE_UNIT = 8
local QUEUE_PART = 4
local HUGE = 1e300

-- Adler-32 (RFC 1950), without the bit operations that Lua 5.1 lacks.
local function adler32(text)
    local a, b = 1, 0
    for first = 1, #text, 5552 do -- as many bytes as can be added before the sums must be reduced
        for place = first, math.min(first + 5551, #text) do
            a = a + string.byte(text, place)
            b = b + a
        end
        a, b = a % 65521, b % 65521
    end
    return b * 65536 + a
end

local function number(word)
    local value = tonumber(word)
    -- Lua 5.1 reads "nan" and "inf" as numbers.
    if not value or value ~= value or value > HUGE or value < -HUGE then
        error("not a finite number: " .. tostring(word), 0)
    end
    return value
end

local function words_of(line)
    local words = {}
    for word in string.gmatch(line, "%S+") do
        words[#words + 1] = word
    end
    return words
end

-- The lines after the first one, if that one's checksum and length are theirs.
local function opened(text, kind)
    local format, sum, length, body = string.match(text, "^" .. kind .. " (%d+) (%d+) (%d+)\n(.*)$")
    if not body or tonumber(format) ~= M.FORMAT then
        error("not a " .. kind:gsub("%%", "") .. " file of format " .. M.FORMAT, 0)
    elseif #body ~= tonumber(length) or adler32(body) ~= tonumber(sum) then
        error("not whole, or changed", 0)
    end
    return string.gmatch(body, "[^\n]+")
end

-- --- reading --------------------------------------------------------------------------------------------------------

local function row_of(words, length)
    local row = {}
    for index = 2, #words do
        row[index - 1] = number(words[index])
    end
    if #row ~= length then
        error("a row of " .. #row .. " weights, not " .. length, 0)
    end
    return row
end

local read = {}

function read.partition(agents, words)
    local agent = { name = words[2], variant = words[3], servers = number(words[4]), longest_s = number(words[5]) }
    agent.flavors, agent.layers, agent.seen = {}, {}, {}
    agents[#agents + 1] = agent
end

function read.flavor(agents, words)
    local flavors = agents[#agents].flavors
    flavors[#flavors + 1] = {
        name = words[2],
        gpus = number(words[3]),
        cpus = number(words[4]),
        memory_mib = number(words[5]),
        limit_s = number(words[6]),
        servers = number(words[7]),
    }
end

function read.layer(agents, words)
    local layers = agents[#agents].layers
    local layer = { inputs = number(words[2]), outputs = number(words[3]), weights = {} }
    -- Written anew with each evaluation. Fresh tables would cost as much again, in garbage collection.
    layer.rows, layer.values, layer.made = {}, {}, {}
    layers[#layers + 1] = layer
end

function read.row(agents, words)
    local layers = agents[#agents].layers
    local layer = layers[#layers]
    local row = row_of(words, layer.outputs)
    if layer.bias then
        layer.weights[#layer.weights + 1] = row
    else
        layer.bias = row
    end
end

-- Numbers of the actions, from 1: each flavour on each server, then queueing each flavour.
local function number_actions(agent)
    local count = 0
    for _, flavor in ipairs(agent.flavors) do
        flavor.first = count + 1
        count = count + (flavor.servers == 1 and agent.servers or 1)
    end
    for index, flavor in ipairs(agent.flavors) do
        flavor.queue = count + index
    end
    return count + #agent.flavors
end

local function check_agent(agent)
    local size = 3 * agent.servers
    if agent.variant == "ours" then
        size = 5 * agent.servers + 2 * #agent.flavors + 2
    elseif agent.variant ~= "paper" then
        error("unknown variant " .. tostring(agent.variant), 0)
    end
    for _, layer in ipairs(agent.layers) do
        if layer.inputs ~= size or #layer.weights ~= size or not layer.bias then
            error("agent of " .. agent.name .. ": layers do not fit together", 0)
        end
        size = layer.outputs
    end
    if number_actions(agent) ~= size or #agent.layers == 0 then
        error("agent of " .. agent.name .. ": wrong number of values", 0)
    end
end

-- The agents in a text of `routing.agents`, in order, and the checksum by which states name them.
function M.read_agents(text)
    local agents = {}
    for line in opened(text, "mirage%-agents") do
        local words = words_of(line)
        read[words[1]](agents, words)
    end
    for _, agent in ipairs(agents) do
        check_agent(agent)
    end
    return agents, adler32(text)
end

local function server_of(words)
    return {
        name = words[2],
        up = words[3] == "1",
        total = { number(words[4]), number(words[5]), number(words[6]) },
        free = { number(words[7]), number(words[8]), number(words[9]) },
        next_end_s = number(words[10]),
        last_end_s = number(words[11]),
    }
end

-- The state in a text of `routing.state`: at_s, valid_s, agents (checksum), and the partitions in order.
function M.read_state(text)
    local state = { partitions = {} }
    for line in opened(text, "mirage%-state") do
        local words = words_of(line)
        local partition = state.partitions[#state.partitions]
        if words[1] == "at" then
            state.at_s, state.valid_s, state.agents = number(words[2]), number(words[3]), number(words[4])
        elseif words[1] == "partition" then
            state.partitions[#state.partitions + 1] = { name = words[2], servers = {}, queued = {} }
        elseif words[1] == "server" then
            partition.servers[#partition.servers + 1] = server_of(words)
        else
            partition.queued = row_of(words, #words - 1)
            partition.queued_s = table.remove(partition.queued, 1)
        end
    end
    return state
end

-- Whether a state and agents are of each other. Raises an error if not.
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
    end
end

function M.is_stale(state, now_s)
    local age_s = now_s - state.at_s
    return age_s > state.valid_s or age_s < -CLOCK_S
end

-- --- what is free ---------------------------------------------------------------------------------------------------

local function has_room(server, flavor)
    local many, free = flavor.servers, server.free
    return server.up
        and free[1] >= math.ceil(flavor.gpus / many)
        and free[2] >= math.ceil(flavor.cpus / many)
        and free[3] >= math.ceil(flavor.memory_mib / many)
end

-- Numbers of the servers, from 1, on which a job can run now; 1 for all of them together.
local function places_of(partition, flavor)
    local places = {}
    for index, server in ipairs(partition.servers) do
        if has_room(server, flavor) then
            places[#places + 1] = index
        end
    end
    if flavor.servers > 1 then
        return #places == #partition.servers and { 1 } or {}
    end
    return places
end

local function take(server, flavor, end_s)
    local many, free = flavor.servers, server.free
    free[1] = free[1] - math.ceil(flavor.gpus / many)
    free[2] = free[2] - math.ceil(flavor.cpus / many)
    free[3] = free[3] - math.ceil(flavor.memory_mib / many)
    if server.next_end_s == 0 or end_s < server.next_end_s then
        server.next_end_s = end_s
    end
    server.last_end_s = math.max(server.last_end_s, end_s)
end

-- Puts a job into the state that was routed at routed.at_s: where it was placed, or into the queue.
function M.correct(state, agents, routed)
    local partition = state.partitions[routed.partition]
    local flavor = agents[routed.partition].flavors[routed.flavor]
    for _, place in ipairs(places_of(partition, flavor)) do
        if place == routed.place then
            local first, last = place, place
            if flavor.servers > 1 then
                first, last = 1, #partition.servers
            end
            for index = first, last do
                take(partition.servers[index], flavor, routed.at_s + routed.limit_s)
            end
            return
        end
    end
    partition.queued[routed.flavor] = partition.queued[routed.flavor] + 1
    partition.queued_s = partition.queued_s + flavor.gpus * routed.limit_s
end

-- --- the choice -----------------------------------------------------------------------------------------------------

local function left(seconds, longest_s)
    return math.min(math.max(seconds, 0), longest_s) / longest_s
end

local function features(partition, agent, chosen, limit_s, now_s)
    local seen, n = agent.seen, 0
    for _, server in ipairs(partition.servers) do
        for kind = 1, 3 do
            n = n + 1
            seen[n] = server.free[kind] / server.total[kind]
        end
    end
    if agent.variant == "paper" then
        return seen
    end
    for _, server in ipairs(partition.servers) do
        seen[n + 1] = left(server.next_end_s - now_s, agent.longest_s)
        seen[n + 2] = left(server.last_end_s - now_s, agent.longest_s)
        n = n + 2
    end
    for _, count in ipairs(partition.queued) do
        n = n + 1
        seen[n] = math.min(count, QUEUE_UNIT) / QUEUE_UNIT
    end
    local gpus, unit_s = 0, agent.longest_s / QUEUE_PART
    for _, server in ipairs(partition.servers) do
        gpus = gpus + server.total[1]
    end
    n = n + 1
    seen[n] = math.min(partition.queued_s / gpus, unit_s) / unit_s
    for index = 1, #agent.flavors do
        n = n + 1
        seen[n] = index == chosen and 1 or 0
    end
    seen[n + 1] = left(limit_s or agent.flavors[chosen].limit_s, agent.longest_s)
    return seen
end

-- Sets layer.values to the inputs that are not 0, and layer.rows to the weights that belong to them; how many.
local function set_inputs(layer, inputs)
    local rows, values, weights, count = layer.rows, layer.values, layer.weights, 0
    for index = 1, layer.inputs do
        local value = inputs[index]
        if value ~= 0 then
            count = count + 1
            rows[count], values[count] = weights[index], value
        end
    end
    return count
end

-- An output begins with its bias, then takes the inputs in turn; then ReLU. Four outputs at once, because slurmctld
-- waits: this is faster than one by one.
local function hidden(layer, inputs)
    local count = set_inputs(layer, inputs)
    local rows, values, bias, outputs, made = layer.rows, layer.values, layer.bias, layer.outputs, layer.made
    for first = 1, outputs, 4 do
        local i, j, k, l = first, first + 1, first + 2, first + 3
        if l > outputs then -- the last ones once more
            i, j, k, l = math.max(outputs - 3, 1), math.max(outputs - 2, 1), math.max(outputs - 1, 1), outputs
        end
        local a, b, c, d = bias[i], bias[j], bias[k], bias[l]
        for number_of = 1, count do
            local row, value = rows[number_of], values[number_of]
            a = a + row[i] * value
            b = b + row[j] * value
            c = c + row[k] * value
            d = d + row[l] * value
        end
        made[i], made[j], made[k], made[l] = a > 0 and a or 0, b > 0 and b or 0, c > 0 and c or 0, d > 0 and d or 0
    end
    return made
end

-- All layers but the last, whose inputs are set: how many.
local function evaluate(agent, inputs)
    local layers = agent.layers
    for number_of = 1, #layers - 1 do
        inputs = hidden(layers[number_of], inputs)
    end
    return set_inputs(layers[#layers], inputs)
end

local function value_of(last, count, action)
    local sum, rows, values = last.bias[action], last.rows, last.values
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

-- The highest value of what a partition can do with a job now, and the place; nil: the job has to wait.
local function judge(partition, agent, chosen, limit_s, now_s)
    local flavor = agent.flavors[chosen]
    local count = evaluate(agent, features(partition, agent, chosen, limit_s, now_s))
    local last, best, where = agent.layers[#agent.layers], nil, nil
    for _, place in ipairs(places_of(partition, flavor)) do
        local value = value_of(last, count, flavor.first + place - 1)
        if not best or value > best then
            best, where = value, place
        end
    end
    best = best or value_of(last, count, flavor.queue)
    if best ~= best or best > HUGE or best < -HUGE then
        error("agent of " .. agent.name .. ": a value is not a finite number", 0)
    end
    return best, where
end

-- Where a job goes: { partition, flavor, place, limit_s }, numbers from 1; nil: nowhere that it may go has a flavour.
-- job: gpus, cpus, memory_mib, nodes, limit_s (nil: the flavour's). allowed: a function from a partition's name.
function M.decide(state, agents, job, allowed, now_s)
    local choice, highest
    for index, agent in ipairs(agents) do
        local flavor = allowed(agent.name) and flavor_of(agent, job)
        if flavor then
            local value, place = judge(state.partitions[index], agent, flavor, job.limit_s, now_s)
            if not highest or value > highest then
                highest = value
                local limit_s = job.limit_s or agent.flavors[flavor].limit_s
                choice = { partition = index, flavor = flavor, place = place, limit_s = limit_s }
            end
        end
    end
    return choice
end

return M
