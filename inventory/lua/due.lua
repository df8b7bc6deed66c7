-- due: pick journal entries that have waited too long for an order, and note that they are queued again.
-- KEYS  the sale's keys, see inventory/keys.py
-- ARGV  retry after in ms, give up after in ms, at most so many
-- returns {purchase, user, quantity, attempt, age in ms, …}; each attempt waits twice as long as the last
-- While purchases admitted before it are still being settled, an entry waits its turn and is not lost:
-- queueing it again would only make a long queue longer. It is lost if later ones overtook it, if
-- nothing at all was settled for a while, or if it is too old to wait any longer.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local after, give_up = tonumber(ARGV[1]), tonumber(ARGV[2])
local settled = redis.call('HMGET', KEYS[1], 'settled_since', 'settled_at')
local reached, settled_at = tonumber(settled[1] or '0'), tonumber(settled[2] or '0')
local idle = now - settled_at >= after
local out = {}
for _, purchase in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now - after, 'LIMIT', 0, ARGV[3])) do
  local claim = redis.call('HGET', KEYS[5], purchase)
  if claim then
    local user, quantity, since = string.match(claim, '^([^|]*)|([^|]*)|[^|]*|([^|]*)')
    local overtaken = since + after / 2 <= reached
    if idle or overtaken or now - since >= give_up then
      local attempt = redis.call('HINCRBY', KEYS[11], purchase, 1)
      redis.call('ZADD', KEYS[4], now + after * (2 ^ math.min(attempt, 10) - 1), purchase)
      for _, value in ipairs({purchase, user, quantity, attempt, now - since}) do out[#out + 1] = value end
    end
  else
    redis.call('ZREM', KEYS[4], purchase)
  end
end
return out
