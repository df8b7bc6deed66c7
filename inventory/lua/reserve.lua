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

local users, purchases, quantities = {}, {}, {}
local entries = cmsgpack.unpack(ARGV[4])
local count = 0
for i = 1, #entries, 3 do
  count = count + 1
  users[count], purchases[count], quantities[count] = entries[i], entries[i + 1], entries[i + 2]
end
local limited = limit > 0 and primed
local lives = redis.call('HMGET', KEYS[3], unpack(users))
local results = redis.call('HMGET', KEYS[6], unpack(purchases))
local rates = limited and redis.call('HMGET', KEYS[9], unpack(users))

-- Numbers become text slowly: those that many entries share are made once.
local at = string.format('%.0f', now)
local step = limited and window / limit
local first_hit = limited and string.format('%.0f|%s', now + step, call)
local claim_end = '|' .. call .. '|' .. at

-- GCRA: a buyer's theoretical arrival time moves on by window/limit with each try.
local hits, hit = {}, {}
local function wait(user, value)
  local value = hit[user] or value
  local text = first_hit
  if value then
    local bar = string.find(value, '|', 1, true)
    -- Counted by this very call already, which is repeated because its reply was lost.
    if not hit[user] and string.sub(value, bar + 1) == call then return 0 end
    local after = math.max(now, tonumber(string.sub(value, 1, bar - 1))) + step
    if after - now > window then return math.ceil(after - now - window) end
    text = string.format('%.0f|%s', after, call)
  end
  hit[user] = text
  hits[#hits + 1], hits[#hits + 2] = user, text
  return 0
end

local taken, answers = 0, {}
local new_live, new_claim = {}, {}
local new_buyers, new_pending, new_claims = {}, {}, {}
for i = 1, count do
  local user, purchase = users[i], purchases[i]
  local mine = new_live[user] or lives[i]
  local answer = nil
  if mine then
    local state, holds = string.sub(mine, -1), string.sub(mine, 1, -3)
    if state == 'o' or state == 'p' then answer = 'O' .. holds
    elseif state == 'x' then answer = 'B'
    else
      local claim = new_claim[holds] or redis.call('HGET', KEYS[5], holds)
      -- A queued buyer without a claim can only be what a partial loss left behind: start afresh.
      if claim then
        local by = string.match(claim, '^[^|]*|[^|]*|([^|]*)')
        if holds == purchase and by == call then answer = 'R' else answer = 'Q' .. holds end
      end
    end
  end
  if not answer and results[i] then answer = 'E' .. results[i] end
  if not answer and closed_for_all then answer = closed_for_all end
  if not answer and limited then
    local ms = wait(user, rates[i])
    if ms > 0 then answer = 'T' .. ms end
  end
  local quantity = quantities[i]
  if not answer and (quantity < 1 or quantity > per_buyer) then answer = 'M' end
  if not answer and quantity > stock - taken then answer = 'S' end
  if not answer then
    taken = taken + quantity
    local claim = user .. '|' .. quantity .. claim_end
    new_live[user], new_claim[purchase] = purchase .. '|q', claim
    local n = #new_buyers
    new_buyers[n + 1], new_buyers[n + 2] = user, new_live[user]
    new_pending[n + 1], new_pending[n + 2] = at, purchase
    new_claims[n + 1], new_claims[n + 2] = purchase, claim
    answer = 'R'
  end
  answers[i] = answer
end

local crossed = 0
if taken > 0 then
  redis.call('DECRBY', KEYS[2], taken)
  redis.call('HSET', KEYS[3], unpack(new_buyers))
  redis.call('ZADD', KEYS[4], unpack(new_pending))
  redis.call('HSET', KEYS[5], unpack(new_claims))
  redis.call('INCR', KEYS[8])
  stock = stock - taken
  if stock == 0 then
    redis.call('INCR', KEYS[7])
    crossed = 1
  end
end
if #hits > 0 then
  redis.call('HSET', KEYS[9], unpack(hits))
  redis.call('PEXPIRE', KEYS[9], math.ceil(2 * window))
end
return {tonumber(redis.call('GET', KEYS[7]) or '0'), stock, crossed, starts, now, unpack(answers)}
