-- adjust: add units to the gate, or take out as many as are there.
-- KEYS  the sale's keys, see inventory/keys.py
-- ARGV  adjustment id, units (negative = take out)
-- returns {epoch, stock (-1 = not primed: nothing was done), crossed (1 = reached or left 0), units moved}
-- An adjustment that the gate knows already gets its first answer again.
local stock = tonumber(redis.call('GET', KEYS[2]) or '-1')
if redis.call('EXISTS', KEYS[1]) == 0 or stock < 0 then return {0, -1, 0, 0} end
local known = redis.call('HGET', KEYS[10], ARGV[1])
local epoch = tonumber(redis.call('GET', KEYS[7]) or '0')
if known then return {epoch, stock, 0, tonumber(known)} end
local units = math.max(tonumber(ARGV[2]), -stock)
redis.call('HSET', KEYS[10], ARGV[1], units)
redis.call('INCR', KEYS[8])
if units == 0 then return {epoch, stock, 0, 0} end
redis.call('INCRBY', KEYS[2], units)
local crossed = 0
if stock == 0 or stock + units == 0 then
  epoch = redis.call('INCR', KEYS[7])
  crossed = 1
end
return {epoch, stock + units, crossed, units}
