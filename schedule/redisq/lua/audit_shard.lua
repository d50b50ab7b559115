-- audit checks and repairs one page of one structure: each record against the three places, each place
-- against its record, each lane's count of leases against the leases and its times against the clock, each
-- waiter against its place. It removes expired locks, and waiters that joined more than a day ago if their
-- lock has no holder.
-- KEYS: META DELAY READY RECORDS UNPROVEN ANSWERING TIMING_OUT BLOCKED HELD BREAKERS HOLDS LANES LEASES
-- KEYS: CLAIMS LOCKS WAITERS WAITING QUARANTINE
-- ARGV: GENERATION OFFSET CHANNEL SHARD PHASE CURSOR
-- PHASE is records, delay, ready, claims, leases, lanes, breakers, locks or waiters. CURSOR is that of HSCAN
-- or ZSCAN.
-- Reply: now, next, seq, the next cursor ("0": the phase is over), checked, repaired
-- Uses: begin records changes flow lanes breaker locks events hints
local PAGE, MAX_COUNTED, DAY, MINUTE = 200, 10000, 86400000, 60000
local FARTHEST = now + 401 * DAY -- due times are at most 400 days after the accept or the reschedule
local checked, repaired = 0, 0
local cursor

call('HDEL', META, '') -- a full server runs a script that begins with a deletion, see settle_leases.lua

-- page reads the next part of a hash or a sorted set, and returns it as two lists.
local function page(command, key)
  local reply = call(command, key, CURSOR, 'COUNT', PAGE)
  local first, second = {}, {}
  for i = 1, #reply[2], 2 do
    first[#first + 1] = reply[2][i]
    second[#second + 1] = reply[2][i + 1]
  end
  cursor = reply[1]
  return first, second
end

-- note_repair counts one repair.
local function note_repair()
  repaired = repaired + 1
end

-- repair_record makes one record and its places agree. If an item is in several places, leased wins over
-- ready, and ready over delayed.
local function repair_record(id, record, claim, ends, score, listed)
  local due, kind, lane, rest = decode(record)
  if not due or time_of(due) > FARTHEST then
    note_repair()
    local digit, claimed_lane = decode_claim(claim)
    if claimed_lane then
      release(touch(claimed_lane), digit)
    end
    set_aside(id, record)
    unlease(id)
    add(cut.delay, id)
    add(cut.records, id)
    return
  end
  touch(lane)
  local member = lane .. kind .. due .. id
  if decode_claim(claim) then
    if not ends then
      note_repair()
      add(put.leases, text(steady), id) -- its end is lost, so it is reaped at once
    elseif tonumber(ends) > steady + DAY then
      note_repair()
      add(put.leases, text(steady + MINUTE), id) -- no attempt takes a day
    end
    if score or listed then
      note_repair()
      add(cut.delay, id)
      add(cut.ready, member)
    end
    return
  end
  if claim or ends then
    note_repair()
    unlease(id)
  end
  if listed then
    if score then
      note_repair()
      add(cut.delay, id)
    end
    return
  end
  local at = time_of(due)
  local number = tonumber(score)
  if number == at then
    return
  end
  note_repair()
  -- Operators see and change the score, so it wins. The record wins if the score cannot be a due time.
  if number and number > 0 and number <= FARTHEST and number == math.floor(number) then
    at = number
  end
  postpone(id, at, redue(record, at, diverts_of(rest)))
end

local function audit_records()
  local ids, records = page('HSCAN', RECORDS)
  local members = {}
  for i, record in ipairs(records) do
    local due, kind, lane = decode(record)
    members[i] = due and lane .. kind .. due .. ids[i] or ids[i]
  end
  local claims, ends = fetch('HMGET', CLAIMS, ids), fetch('ZMSCORE', LEASES, ids)
  local scores, listed = fetch('ZMSCORE', DELAY, ids), fetch('ZMSCORE', READY, members)
  for i, id in ipairs(ids) do
    repair_record(id, records[i], claims[i], ends[i], scores[i], listed[i])
  end
  checked = #ids
end

-- audit_strays removes members without a record from one structure.
local function audit_strays(command, key, list)
  local ids, values = page(command, key)
  for i, record in ipairs(fetch('HMGET', RECORDS, ids)) do
    if not record then
      note_repair()
      add(list, ids[i])
      local _, lane = decode_claim(key == CLAIMS and values[i])
      if lane then
        touch(lane)
      end
    end
  end
  checked = #ids
end

-- audit_ready removes members that do not agree with their id's record.
local function audit_ready()
  local members, scores = page('ZSCAN', READY)
  local ids = {}
  for i, member in ipairs(members) do
    ids[i] = string.sub(member, -26)
  end
  for i, record in ipairs(fetch('HMGET', RECORDS, ids)) do
    local due, kind, lane = decode(record)
    if not due or lane .. kind .. due .. ids[i] ~= members[i] then
      note_repair()
      add(cut.ready, members[i])
    else
      if scores[i] ~= '0' then
        note_repair()
        add(put.ready, '0', members[i])
      end
      touch(lane)
    end
  end
  checked = #ids
end

-- repair_flow corrects impossible values of a lane's flow, and its entry in BREAKERS. A lost value becomes
-- the one that limits the lane least.
local function repair_flow(n, listed)
  local f = flow_of(n)
  local wrong = f.at > token_clock + f.every / NS or f.rest >= NS or f.since > steady
    or f.fails > BREAKER_ATTEMPTS or f.probe > steady + rest_of(n.lane)
  if wrong then
    f.at, f.rest, f.fails, f.since, f.probe = math.min(f.at, token_clock), 0, 0, 0, 0
  end
  f.open = listed and true or false -- place_lanes corrects BREAKERS if it differs
  if wrong or f.open ~= (f.probe > 0) then
    note_repair()
  end
end

-- audit_lanes corrects the counts of leases. There are at most as many leases as all processes have slots. If
-- the shard has more than MAX_COUNTED, the counts stay as they are.
local function audit_lanes()
  local names, raws = page('HSCAN', LANES)
  local leases
  if call('HLEN', CLAIMS) <= MAX_COUNTED then
    leases = {}
    for _, claim in ipairs(call('HVALS', CLAIMS)) do
      local digit, lane = decode_claim(claim)
      if lane and is_counted(digit) then
        leases[lane] = (leases[lane] or 0) + 1
      end
    end
  end
  local opened, ended = fetch('ZMSCORE', BREAKERS, names), {}
  for i, name in ipairs(names) do
    known[name] = known[name] or parse_lane(name, raws[i])
    local n = touch(name)
    if n.hold <= steady then
      ended[#ended + 1] = name
    end
    n.listed = true
    if leases and n.leases ~= (leases[name] or 0) then
      note_repair()
      n.leases = leases[name] or 0
    end
    if n.flow or opened[i] then
      repair_flow(n, opened[i])
    end
    for health = 0, 2 do
      if health ~= n.health and call('ZREM', runnable_sets[health], name) == 1 then
        note_repair()
      end
    end
  end
  variadic('HDEL', HOLDS, ended)
  checked = #names
end

-- audit_breakers removes unknown lanes from BREAKERS.
local function audit_breakers()
  local names = page('ZSCAN', BREAKERS)
  for i, raw in ipairs(fetch('HMGET', LANES, names)) do
    if not raw then
      note_repair()
      call('ZREM', BREAKERS, names[i])
    end
  end
  checked = #names
end

-- audit_locks removes expired locks.
local function audit_locks()
  local names = page('HSCAN', LOCKS)
  for _, name in ipairs(names) do
    if #holders_of(name) == 0 then
      call('HDEL', LOCKS, name)
    end
  end
  checked = #names
end

-- audit_waiters removes entries that do not agree with WAITING, and waiters that joined more than a day ago
-- if their lock has no holder: canceled items must not stay in a queue for ever.
local function audit_waiters()
  local places, scores = page('ZSCAN', WAITERS)
  for i, place in ipairs(places) do
    local lock, id = split_place(place)
    local joined = math.floor((tonumber(string.match(place, ':(%x+):') or '0', 16) or 0) / 1024)
    if not id or call('HGET', WAITING, id) ~= place then
      note_repair()
      call('ZREM', WAITERS, place)
    elseif scores[i] ~= '0' then
      note_repair()
      call('ZADD', WAITERS, '0', place) -- all scores must be equal, so that the entries sort by their texts
    elseif joined < steady - DAY and #holders_of(lock) == 0 then
      leave(lock, id)
    end
  end
  checked = #places
end

if PHASE == 'records' then
  audit_records()
elseif PHASE == 'delay' then
  audit_strays('ZSCAN', DELAY, cut.delay)
elseif PHASE == 'ready' then
  audit_ready()
elseif PHASE == 'claims' then
  audit_strays('HSCAN', CLAIMS, cut.claims)
elseif PHASE == 'leases' then
  audit_strays('ZSCAN', LEASES, cut.leases)
elseif PHASE == 'lanes' then
  audit_lanes()
elseif PHASE == 'breakers' then
  audit_breakers()
elseif PHASE == 'locks' then
  audit_locks()
else
  audit_waiters()
end
write_changes()
place_lanes()

local reply = announce(woken)
reply[4], reply[5], reply[6] = cursor, checked, repaired
return reply
