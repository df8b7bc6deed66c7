-- configure: bring a loaded gate up to date with the sale's settings.
-- KEYS  the sale's keys, see inventory/keys.py
-- ARGV  starts, ends (ms), per_buyer, paused, rebuy, revision
-- returns 1 = set, 0 = the gate knows a newer revision, -1 = not primed
local known = redis.call('HGET', KEYS[1], 'revision')
if not known or redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
if tonumber(known) > tonumber(ARGV[6]) then return 0 end
redis.call('HSET', KEYS[1], 'starts', ARGV[1], 'ends', ARGV[2], 'per_buyer', ARGV[3], 'paused', ARGV[4],
  'rebuy', ARGV[5], 'revision', ARGV[6])
return 1
