"""What Redis does in one step each, so that no other writer comes between; in Lua, as Redis takes it.

Which row wins. A row has an event time and the Delta version it was read at. A later event time wins; of the same one
the later version. So a slow backfill never takes the place of a newer row.

A load that has read a whole table knows more: what is not in its version is gone. It says up to which event time it has
read everything (`known`), and so its row may also take the place of a later one that an older version had, and that is
there no more. `floor` keeps the newest such load: a slower one of an older version brings nothing back.

A value begins with event time and version, 8 bytes each, as `lakehouse.online.sets` packs it.
"""

# KEYS: floor. ARGV: version, known, id of the Delta table. Answers the version of the floor, or -1: of another table.
BEGIN = """
local version, known, id = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local floor = redis.call('GET', KEYS[1])
if floor then
  local of, till = struct.unpack('>i8i8', floor)
  if string.sub(floor, 17) ~= id then return -1 end
  if version < of or known < till then return of end
end
redis.call('SET', KEYS[1], struct.pack('>i8i8', version, known) .. id)
return version
"""

# KEYS: floor, one a row. ARGV: version, known (-1: the load has not read all), then of each row: when it is to go
# (milliseconds since 1970; -1: not by itself), value. Answers how many were written, there already, and older than what
# is there.
PUT = """
local version, known = tonumber(ARGV[1]), tonumber(ARGV[2])
local of, till = -1, -1
local floor = redis.call('GET', KEYS[1])
if floor then of, till = struct.unpack('>i8i8', floor) end
local count = {written = 0, same = 0, older = 0}
for i = 2, #KEYS do
  local value, outcome = ARGV[2 * i], 'older'
  local event = struct.unpack('>i8', value)
  if version >= of or event > till then
    local there = redis.call('GETRANGE', KEYS[i], 0, 15)
    if #there < 16 then
      outcome = 'written'
    else
      local event_there, version_there = struct.unpack('>i8i8', there)
      if event == event_there and version == version_there then
        outcome = 'same'
        -- When it is to go is no part of the row: it is by the moment of the load, which may stand still or not.
        if ARGV[2 * i - 1] == '-1' then
          redis.call('PERSIST', KEYS[i])
        else
          redis.call('PEXPIREAT', KEYS[i], ARGV[2 * i - 1])
        end
      elseif event > event_there or (event == event_there and version > version_there) then
        outcome = 'written'
      elseif event < event_there and event_there <= known and version > version_there then
        outcome = 'written'
      end
    end
  end
  if outcome == 'written' then
    if ARGV[2 * i - 1] == '-1' then
      redis.call('SET', KEYS[i], value)
    else
      redis.call('SET', KEYS[i], value, 'PXAT', ARGV[2 * i - 1])
    end
  end
  count[outcome] = count[outcome] + 1
end
return {count.written, count.same, count.older}
"""

# KEYS: one a row. ARGV: version, known, oldest. Removes rows that a load of this version would have found, and did not,
# and those of an event time before the oldest that may be used.
SWEEP = """
local version, known, oldest, removed = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), 0
for i = 1, #KEYS do
  local there = redis.call('GETRANGE', KEYS[i], 0, 15)
  if #there == 16 then
    local event, of = struct.unpack('>i8i8', there)
    if (of < version and event <= known) or event < oldest then removed = removed + redis.call('UNLINK', KEYS[i]) end
  end
end
return removed
"""
