-- reserve: admit or refuse a batch of purchases, in the order given.
-- KEYS  the sale's keys, see inventory/keys.py
-- ARGV  call id, rate limit (0 = none), rate window in ms, and a MessagePack array with three items per
--       entry: user (text), purchase, quantity
-- returns {epoch, stock (-1 = not primed), crossed (1 = stock reached 0 now), starts in ms, now in ms,
--          answer, answer, …}
-- answers R reserved | Q<purchase> live, queued | O<purchase> live, ordered | E<result> this purchase
--         has ended | U not primed | P paused | N not open | C closed | M quantity over the limit
--         S sold out | B no second try | T<ms> too fast, wait
-- The same entry in the same call id gets the same answer, however often the call is repeated.
local call, limit, window = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local info = redis.call('HMGET', KEYS[1], 'starts', 'ends', 'per_buyer', 'paused')
local stock = tonumber(redis.call('GET', KEYS[2]) or '-1')
local primed = info[1] and stock >= 0
local starts, ends = tonumber(info[1] or 0), tonumber(info[2] or 0)
local per_buyer = tonumber(info[3] or 0)

local closed_for_all = false
if not primed then closed_for_all = 'U'
elseif info[4] == '1' then closed_for_all = 'P'
elseif now < starts then closed_for_all = 'N'
elseif now >= ends then closed_for_all = 'C' end

local users, purchases = {}, {}
local entries = cmsgpack.unpack(ARGV[4])
for i = 1, #entries, 3 do
  users[#users + 1] = entries[i]
  purchases[#purchases + 1] = entries[i + 1]
end
local live, ended = {}, {}
for i, value in ipairs(redis.call('HMGET', KEYS[3], unpack(users))) do
  if value then live[users[i]] = value end
end
for i, value in ipairs(redis.call('HMGET', KEYS[6], unpack(purchases))) do
  if value then ended[purchases[i]] = value end
end
local rates = {}
if limit > 0 and primed then
  for i, value in ipairs(redis.call('HMGET', KEYS[9], unpack(users))) do
    if value then rates[users[i]] = value end
  end
end

-- GCRA: a buyer's theoretical arrival time moves on by window/limit with each try.
local hit = {}
local function wait(user)
  local value = rates[user]
  local tat, seen = now, nil
  if value then
    local bar = string.find(value, '|', 1, true)
    tat, seen = math.max(now, tonumber(string.sub(value, 1, bar - 1))), string.sub(value, bar + 1)
  end
  if seen == call and hit[user] == nil then return 0 end
  local after = tat + window / limit
  if after - now > window then return math.ceil(after - now - window) end
  rates[user] = string.format('%.0f|%s', after, call)
  hit[user] = rates[user]
  return 0
end

local taken, answers = 0, {}
local new_buyers, new_pending, new_claims = {}, {}, {}
for i = 1, #users do
  local user, purchase, quantity = users[i], purchases[i], entries[3 * i]
  local mine = live[user]
  local answer = nil
  if mine then
    local state, holds = string.sub(mine, -1), string.sub(mine, 1, -3)
    if state == 'o' or state == 'p' then answer = 'O' .. holds
    elseif state == 'x' then answer = 'B'
    else
      local claim = new_claims[holds] or redis.call('HGET', KEYS[5], holds)
      -- A queued buyer without a claim can only be what a partial loss left behind: start afresh.
      if claim then
        local by = string.match(claim, '^[^|]*|[^|]*|([^|]*)')
        if holds == purchase and by == call then answer = 'R' else answer = 'Q' .. holds end
      end
    end
  end
  if not answer and ended[purchase] then answer = 'E' .. ended[purchase] end
  if not answer and closed_for_all then answer = closed_for_all end
  if not answer and limit > 0 then
    local ms = wait(user)
    if ms > 0 then answer = 'T' .. ms end
  end
  if not answer and (quantity < 1 or quantity > per_buyer) then answer = 'M' end
  if not answer and quantity > stock - taken then answer = 'S' end
  if not answer then
    taken = taken + quantity
    live[user] = purchase .. '|q'
    new_claims[purchase] = user .. '|' .. quantity .. '|' .. call .. '|' .. now
    new_buyers[#new_buyers + 1] = user
    new_buyers[#new_buyers + 1] = live[user]
    new_pending[#new_pending + 1] = now
    new_pending[#new_pending + 1] = purchase
    answer = 'R'
  end
  answers[i] = answer
end

local crossed = 0
if taken > 0 then
  redis.call('DECRBY', KEYS[2], taken)
  redis.call('HSET', KEYS[3], unpack(new_buyers))
  redis.call('ZADD', KEYS[4], unpack(new_pending))
  local flat = {}
  for purchase, claim in pairs(new_claims) do
    flat[#flat + 1] = purchase
    flat[#flat + 1] = claim
  end
  redis.call('HSET', KEYS[5], unpack(flat))
  redis.call('INCR', KEYS[8])
  stock = stock - taken
  if stock == 0 then
    redis.call('INCR', KEYS[7])
    crossed = 1
  end
end
local rated = {}
for user, value in pairs(hit) do
  rated[#rated + 1] = user
  rated[#rated + 1] = value
end
if #rated > 0 then
  redis.call('HSET', KEYS[9], unpack(rated))
  redis.call('PEXPIRE', KEYS[9], math.ceil(2 * window))
end
return {tonumber(redis.call('GET', KEYS[7]) or '0'), stock, crossed, starts, now, unpack(answers)}
