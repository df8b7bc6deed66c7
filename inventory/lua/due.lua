-- due: pick journal entries that have waited too long for an order, and note that they are queued again.
-- KEYS  the sale's keys, see inventory/keys.py
-- ARGV  retry after in ms, at most so many
-- returns {purchase, user, quantity, attempt, age in ms, …}; each attempt waits twice as long as the last
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local after = tonumber(ARGV[1])
local out = {}
for _, purchase in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now - after, 'LIMIT', 0, ARGV[2])) do
  local claim = redis.call('HGET', KEYS[5], purchase)
  if claim then
    local user, quantity, since = string.match(claim, '^([^|]*)|([^|]*)|[^|]*|([^|]*)')
    local attempt = redis.call('HINCRBY', KEYS[11], purchase, 1)
    redis.call('ZADD', KEYS[4], now + after * (2 ^ math.min(attempt, 10) - 1), purchase)
    for _, value in ipairs({purchase, user, quantity, attempt, now - since}) do out[#out + 1] = value end
  else
    redis.call('ZREM', KEYS[4], purchase)
  end
end
return out
