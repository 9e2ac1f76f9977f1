-- Where a job may go without agents; `mirage/routing/places.py` is the reference, and both must choose the same.
-- No input, no output, no clock.

local M = {}

local NEVER_S = 1000000000

local function can_run(shape, job)
    local many = job.nodes
    return many <= shape.count and job.gpus <= shape.gpus * many and job.cpus <= shape.cpus * many
        and job.memory_mib <= shape.memory_mib * many and (job.gpus > 0) == (shape.gpus > 0)
        and (not job.gpu_type or job.gpu_type == shape.gpu_type)
end

local function wait_of(place, job)
    local rows, limit_s = place.waits, job.limit_s or 0
    for index = 1, #rows do
        local row = rows[index]
        if job.nodes <= row.nodes and limit_s <= row.limit_s then
            return row.wait_s
        end
    end
    return #rows > 0 and rows[#rows].wait_s or NEVER_S
end

local function runs_in(place, job)
    for index = 1, #place.shapes do
        if can_run(place.shapes[index], job) then
            return true
        end
    end
    return false
end

-- Names of the partitions, the one with the shortest forecast wait first, and that wait; nil: none can run it.
-- job: nodes, gpus, gpu_type (nil: any), cpus, memory_mib, limit_s (nil: none given). allowed: as of mirage_decide.lua.
function M.decide(places, job, allowed)
    local names, waits = {}, {}
    for index = 1, #places do
        local place = places[index]
        if runs_in(place, job) and allowed(place.name, job) then
            local wait_s, at = wait_of(place, job), #names + 1
            while at > 1 and waits[at - 1] > wait_s do
                at = at - 1
            end
            table.insert(names, at, place.name)
            table.insert(waits, at, wait_s)
        end
    end
    if #names == 0 then
        return nil
    end
    return table.concat(names, ","), waits[1] < NEVER_S and waits[1] or nil
end

return M
