-- prime: load a sale's gate from a snapshot of the database, if it isn't loaded.
-- KEYS  the sale's keys, see inventory/keys.py, then the staging hash with the buyers of the snapshot
-- ARGV  units not allocated, starts, ends (ms), per_buyer, paused, rebuy, revision, how many buyers,
--       then the stock adjustments that the snapshot contains
-- returns 1 = loaded, 0 = was loaded already, -1 = the staging hash got lost: nothing was done
-- The journal is kept if it is still there (only the stock may have been lost): what it holds and
-- the snapshot doesn't know is taken off the stock.
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('DEL', KEYS[12])
  return 0
end
if redis.call('HLEN', KEYS[12]) ~= tonumber(ARGV[8]) then
  redis.call('DEL', KEYS[12])
  return -1
end
redis.call('DEL', KEYS[3], KEYS[10])
if redis.call('EXISTS', KEYS[12]) == 1 then
  redis.call('RENAME', KEYS[12], KEYS[3])
  redis.call('PERSIST', KEYS[3])
end
local stock = tonumber(ARGV[1])
local claims = redis.call('HGETALL', KEYS[5])
for i = 1, #claims, 2 do
  local user, units = string.match(claims[i + 1], '^([^|]*)|([^|]*)')
  local mine = redis.call('HGET', KEYS[3], user)
  if not (mine and string.sub(mine, 1, -3) == claims[i]) then
    stock = stock - tonumber(units)
    redis.call('HSETNX', KEYS[3], user, claims[i] .. '|q')
  end
end
for i = 9, #ARGV do redis.call('HSET', KEYS[10], ARGV[i], '0') end
redis.call('HSET', KEYS[1], 'starts', ARGV[2], 'ends', ARGV[3], 'per_buyer', ARGV[4], 'paused', ARGV[5],
  'rebuy', ARGV[6], 'revision', ARGV[7])
redis.call('SET', KEYS[2], math.max(0, stock))
local time = redis.call('TIME')
-- Numbers of an earlier life of this gate must never come back: both start at the time, or after
-- what is still there.
local function start(key, at)
  local last = tonumber(redis.call('GET', key) or '0')
  redis.call('SET', key, string.format('%.0f', math.max(at, last + 1)))
end
start(KEYS[7], time[1] * 1000 + math.floor(time[2] / 1000))
start(KEYS[8], time[1] * 1000000 + time[2])
return 1
