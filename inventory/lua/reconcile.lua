-- reconcile: correct the stock, if nothing at all has changed since the snapshot it was computed from.
-- KEYS  the sale's keys, see inventory/keys.py
-- ARGV  version of that snapshot, the right stock
-- returns {epoch, stock (-1 = not primed), crossed (1 = reached or left 0), 1 = done | 0 = changed meanwhile}
local stock = tonumber(redis.call('GET', KEYS[2]) or '-1')
if redis.call('EXISTS', KEYS[1]) == 0 or stock < 0 then return {0, -1, 0, 0} end
local epoch = tonumber(redis.call('GET', KEYS[7]) or '0')
if redis.call('GET', KEYS[8]) ~= ARGV[1] then return {epoch, stock, 0, 0} end
local right, crossed = tonumber(ARGV[2]), 0
redis.call('SET', KEYS[2], right)
redis.call('INCR', KEYS[8])
if (stock == 0) ~= (right == 0) then
  epoch = redis.call('INCR', KEYS[7])
  crossed = 1
end
return {epoch, right, crossed, 1}
