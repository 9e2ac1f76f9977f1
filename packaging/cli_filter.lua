-- For sites that want no wrapper in front of sbatch (docs/wrapper.md): CliFilterPlugins=lua in slurm.conf, and this file as
-- cli_filter.lua beside it, or its function within a site's own. It runs in sbatch, as the user. A filter can change
-- options or refuse, but not submit a second job, so it tells who forgot mirage-submit, instead of starting a chain.

local LONGEST_HEAD = 4000000 -- bytes; sbatch takes no longer scripts by default

-- Where #MIRAGE lines count: before the first line that is neither empty nor a comment.
local function has_mirage_lines(path)
    local file = io.open(path, "rb")
    if not file then return false end
    local head = file:read(LONGEST_HEAD) or ""
    file:close()
    for line in head:gmatch("[^\n]*") do
        if line:match("^#MIRAGE%s") or line == "#MIRAGE" then return true end
        if line:match("%S") and not line:match("^%s*#") then return false end
    end
    return false
end

local function forgot_mirage_submit(options)
    if options["type"] ~= "sbatch" or options["wrap"] then return false end
    local argv = options["argv"] or {}
    local script = argv[0] or argv[1]
    return script ~= nil and has_mirage_lines(script)
end

function slurm_cli_setup_defaults(options, early)
    return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, offset)
    -- A fault in here must not keep anybody from submitting.
    local worked, forgot = pcall(forgot_mirage_submit, options)
    if worked and forgot then
        slurm.log_error("this script has #MIRAGE lines: start it as a chain, with mirage-submit in place of sbatch")
        return slurm.ERROR
    end
    return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
    return slurm.SUCCESS
end
