-- snapshot: what the gate holds, in one step.
-- KEYS  the sale's keys, see inventory/keys.py
-- returns {stock (-1 = not primed), version, epoch, purchase, claim, purchase, claim, …}
local stock = tonumber(redis.call('GET', KEYS[2]) or '-1')
if redis.call('EXISTS', KEYS[1]) == 0 then stock = -1 end
local out = {stock, redis.call('GET', KEYS[8]) or '', tonumber(redis.call('GET', KEYS[7]) or '0')}
for _, value in ipairs(redis.call('HGETALL', KEYS[5])) do out[#out + 1] = value end
return out
