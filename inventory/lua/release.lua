-- release: give back the units of purchases whose orders have ended.
-- KEYS  the sale's keys, see inventory/keys.py
-- ARGV  per entry: purchase, user, units, 1 = also if it was paid after its end (see retake.lua)
-- returns {epoch, stock (-1 = not primed: nothing was done), crossed (1 = stock left 0 now), released}
-- Only a purchase that still holds the buyer's entry gives units back, so a second call changes
-- nothing. A result is left behind, so that a late repeat of the same purchase is not admitted.
local info = redis.call('HGET', KEYS[1], 'rebuy')
local stock = tonumber(redis.call('GET', KEYS[2]) or '-1')
if not info or stock < 0 then return {0, -1, 0, 0} end

local back, released = 0, 0
for i = 1, #ARGV, 4 do
  local purchase, user, units = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local mine = redis.call('HGET', KEYS[3], user)
  local state = mine and string.sub(mine, -1)
  local held = state and state ~= 'x' and (state ~= 'p' or ARGV[i + 3] == '1')
  if held and string.sub(mine, 1, -3) == purchase then
    back = back + units
    released = released + 1
    if info == '1' then
      redis.call('HDEL', KEYS[3], user)
    else
      redis.call('HSET', KEYS[3], user, purchase .. '|x')
    end
  end
  redis.call('HDEL', KEYS[5], purchase)
  redis.call('ZREM', KEYS[4], purchase)
  redis.call('HDEL', KEYS[11], purchase)
  redis.call('HSETNX', KEYS[6], purchase, 'o')
end
local crossed = 0
redis.call('INCR', KEYS[8])
if back > 0 then
  redis.call('INCRBY', KEYS[2], back)
  if stock == 0 then
    redis.call('INCR', KEYS[7])
    crossed = 1
  end
end
return {tonumber(redis.call('GET', KEYS[7]) or '0'), stock + back, crossed, released}
