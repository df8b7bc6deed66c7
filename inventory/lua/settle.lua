-- settle: write down what became of admitted purchases, once the database has decided.
-- KEYS  the sale's keys, see inventory/keys.py
-- ARGV  per entry: purchase, user (0 = unknown), outcome (o ordered | code of the rejection), units back, live purchase
-- returns {epoch, stock (-1 = not primed: nothing was done), crossed (1 = stock left 0 now)}
-- A rejection returns its units only while the purchase still holds the buyer's entry, so a second
-- call changes nothing. Units that the database had no room for are not among "units back".
-- A live purchase (the rejection was a duplicate) becomes the buyer's entry.
local info = redis.call('EXISTS', KEYS[1])
local stock = tonumber(redis.call('GET', KEYS[2]) or '-1')
if info == 0 or stock < 0 then return {0, -1, 0} end

local purchases, results, back, latest = {}, {}, 0, 0
local buyers = {}
for i = 1, #ARGV, 5 do
  local purchase, user, outcome, units, other =
    ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4]
  local holder, since = string.match(redis.call('HGET', KEYS[5], purchase) or '', '^([^|]*).*|([^|]*)$')
  -- The buyer's account may be gone; the journal still knows whose entry it was.
  if user == '0' then user = holder or user end
  latest = math.max(latest, tonumber(since) or 0)
  local mine = redis.call('HGET', KEYS[3], user)
  local holds = mine and string.sub(mine, 1, -3) == purchase and string.sub(mine, -1) ~= 'x'
  purchases[#purchases + 1] = purchase
  results[#results + 1] = purchase
  if outcome == 'o' then
    results[#results + 1] = 'o'
    if holds and string.sub(mine, -1) ~= 'p' then
      buyers[#buyers + 1] = user
      buyers[#buyers + 1] = purchase .. '|o'
    end
  else
    results[#results + 1] = 'x|' .. outcome
    if holds then
      back = back + units
      if other ~= '' then
        redis.call('HSET', KEYS[3], user, other .. '|o')
      elseif outcome == 'rebuy_not_allowed' then
        redis.call('HSET', KEYS[3], user, purchase .. '|x')
      else
        redis.call('HDEL', KEYS[3], user)
      end
    end
  end
end
if #buyers > 0 then redis.call('HSET', KEYS[3], unpack(buyers)) end
redis.call('HSET', KEYS[6], unpack(results))
redis.call('HDEL', KEYS[5], unpack(purchases))
redis.call('ZREM', KEYS[4], unpack(purchases))
redis.call('HDEL', KEYS[11], unpack(purchases))
if latest > 0 then
  -- How far the queue has come: due.lua tells by it what was lost from what only waits its turn.
  local time = redis.call('TIME')
  local before = tonumber(redis.call('HGET', KEYS[1], 'settled_since') or '0')
  redis.call('HSET', KEYS[1], 'settled_since', math.max(before, latest), 'settled_at',
    time[1] * 1000 + math.floor(time[2] / 1000))
end
redis.call('INCR', KEYS[8])
local crossed = 0
if back > 0 then
  redis.call('INCRBY', KEYS[2], back)
  if stock == 0 then
    redis.call('INCR', KEYS[7])
    crossed = 1
  end
end
return {tonumber(redis.call('GET', KEYS[7]) or '0'), stock + back, crossed}
