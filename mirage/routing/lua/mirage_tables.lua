-- The published texts of agents and state, read into tables. No input, no output, no clock: `mirage/routing/table.py`
-- writes the texts and says how they look. Runs on Lua 5.1 (slurmctld's on Debian 12) to 5.4.

local M = {}

M.FORMAT = 3
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
    agent.has_actions = agent.variant == "paper"
    agent.flavors, agent.layers, agent.seen = {}, {}, {}
    agents[#agents + 1] = agent
end

function read.flavor(agents, words)
    local flavors, servers = agents[#agents].flavors, number(words[7])
    local gpus, cpus, memory_mib = number(words[3]), number(words[4]), number(words[5])
    flavors[#flavors + 1] = {
        name = words[2],
        gpus = gpus,
        cpus = cpus,
        memory_mib = memory_mib,
        limit_s = number(words[6]),
        servers = servers,
        each = { math.ceil(gpus / servers), math.ceil(cpus / servers), math.ceil(memory_mib / servers) },
    }
end

function read.layer(agents, words)
    local layers = agents[#agents].layers
    local layer = { inputs = number(words[2]), outputs = number(words[3]), weights = {} }
    -- Written again with each evaluation: fresh tables would bring garbage collection.
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

-- Inputs and values of a network; nil inputs: any number, which depends on how many partitions there are.
local function sizes_of(agent)
    if agent.variant == "paper" then
        return 3 * agent.servers, number_actions(agent)
    elseif agent.variant == "choice" then
        return nil, 1
    end
    error("unknown variant " .. tostring(agent.variant), 0)
end

local function check_agent(agent)
    local size, values = sizes_of(agent)
    for _, layer in ipairs(agent.layers) do
        size = size or layer.inputs
        if layer.inputs ~= size or #layer.weights ~= size or not layer.bias then
            error("agent of " .. agent.name .. ": layers do not fit together", 0)
        end
        size = layer.outputs
    end
    if values ~= size or #agent.layers == 0 then
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

local read_line = {}

function read_line.at(state, words)
    state.at_s, state.valid_s, state.agents = number(words[2]), number(words[3]), number(words[4])
end

function read_line.place(state, words)
    state.places[#state.places + 1] = { name = words[2], shapes = {}, waits = {} }
end

function read_line.nodes(state, words)
    local shapes = state.places[#state.places].shapes
    shapes[#shapes + 1] = {
        count = number(words[2]),
        cpus = number(words[3]),
        memory_mib = number(words[4]),
        gpus = number(words[5]),
        gpu_type = words[6],
    }
end

function read_line.wait(state, words)
    local waits = state.places[#state.places].waits
    waits[#waits + 1] = { nodes = number(words[2]), limit_s = number(words[3]), wait_s = number(words[4]) }
end

function read_line.partition(state, words)
    state.partitions[#state.partitions + 1] = { name = words[2], servers = {}, queued = {}, waits = {} }
end

function read_line.server(state, words)
    local servers = state.partitions[#state.partitions].servers
    servers[#servers + 1] = server_of(words)
end

function read_line.queued(state, words)
    local partition = state.partitions[#state.partitions]
    partition.queued = row_of(words, #words - 1)
    partition.queued_s = table.remove(partition.queued, 1)
end

function read_line.waits(state, words)
    state.partitions[#state.partitions].waits = row_of(words, #words - 1)
end

-- The state in a text of `routing.state`: at_s, valid_s, agents (checksum; 0: none), places, the agents' partitions.
function M.read_state(text)
    local state = { partitions = {}, places = {} }
    for line in opened(text, "mirage%-state") do
        local words = words_of(line)
        read_line[words[1]](state, words)
    end
    return state
end

return M
