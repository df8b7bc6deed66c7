-- retake: hold units for an order that has ended and may live again, because its money came late.
-- KEYS  the sale's keys, see inventory/keys.py
-- ARGV  purchase, user, units
-- returns {epoch, stock (-1 = not primed: nothing was done), crossed (1 = stock reached 0 now), 1 = held | 0}
-- The purchase becomes its buyer's entry, in state p (paid after its end): the release of that first
-- end, if it comes only now, must not touch it. Refused if too few units are there, or the buyer has
-- another purchase. A second call changes nothing.
local stock = tonumber(redis.call('GET', KEYS[2]) or '-1')
if redis.call('EXISTS', KEYS[1]) == 0 or stock < 0 then return {0, -1, 0, 0} end
local purchase, user, units = ARGV[1], ARGV[2], tonumber(ARGV[3])
local epoch = tonumber(redis.call('GET', KEYS[7]) or '0')
local mine = redis.call('HGET', KEYS[3], user)
local live = mine and string.sub(mine, -1) ~= 'x'
if live then
  if string.sub(mine, 1, -3) ~= purchase then return {epoch, stock, 0, 0} end
  units = 0 -- Not released yet, so it still holds them.
end
if units > stock then return {epoch, stock, 0, 0} end
redis.call('DECRBY', KEYS[2], units)
redis.call('HSET', KEYS[3], user, purchase .. '|p')
redis.call('INCR', KEYS[8])
local crossed = 0
if units > 0 and stock == units then
  epoch = redis.call('INCR', KEYS[7])
  crossed = 1
end
return {epoch, stock - units, crossed, 1}
