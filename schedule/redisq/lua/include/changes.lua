-- changes collects writes. It writes destinations before sources, so that an item is in some place even if
-- the server stops in between. An id occurs once in a call. Needs begin, RECORDS, DELAY, READY, CLAIMS,
-- LEASES.
local put, cut

local function fresh_changes()
  put = {records = {}, delay = {}, ready = {}, claims = {}, leases = {}}
  cut = {records = {}, delay = {}, ready = {}, claims = {}, leases = {}}
end
fresh_changes()

local function add(list, a, b)
  list[#list + 1] = a
  list[#list + 1] = b
end

-- postpone puts an id into the delay set, with its record. If it is due beyond the watermark, it removes the
-- item.
local function postpone(id, due, record)
  if due > latest_due then
    add(cut.delay, id)
    add(cut.records, id)
    return
  end
  add(put.delay, text(due), id)
  add(put.records, id, record)
end

-- unlease removes the lease of an id.
local function unlease(id)
  add(cut.leases, id)
  add(cut.claims, id)
end

-- write_changes executes the collected writes.
local function write_changes()
  variadic('HSET', RECORDS, put.records)
  variadic('ZADD', DELAY, put.delay)
  variadic('ZADD', READY, put.ready)
  variadic('HSET', CLAIMS, put.claims)
  variadic('ZADD', LEASES, put.leases)
  variadic('ZREM', READY, cut.ready)
  variadic('ZREM', DELAY, cut.delay)
  variadic('ZREM', LEASES, cut.leases)
  variadic('HDEL', CLAIMS, cut.claims)
  variadic('HDEL', RECORDS, cut.records)
  fresh_changes()
end
