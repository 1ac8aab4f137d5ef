-- Numbers a batch of messages and queues it for MySQL: all of it or nothing.
-- KEYS  1 ctx   2 msgs   3 ids   4 sess:pending
-- ARGV  1 run id of this server   2 actor   3 TTL, s   4 max age, us   5 window, messages   6 stream ident
--       7 trace id   8 '1' when neither MySQL nor the stream has those of the given entry ids that `ids` does not have
--       9 how many entries the stream may hold: at so many nothing new is queued
--       10 when the session was made, us: times in the window count from there
--       then five for each message: entry id,
--       '0' its id was made for this call, '1' the caller gave it, '2' given, but looks like one that was made once,
--       '3' given, and lost with the queue: it is queued again under its number, '4' given, and was looked for,
--       digest, body (JSON object without its end), head (the same cut short for the window; '' where body is short)
-- RETURNS
--   {'OK', now us, first seq, {seq, at us, stream id or '=' .. state}..., flat, entries in the stream,
--    the entry that the first new one follows ('' for none)}; the others follow each other
--   {'FULL', entries in the stream}   nothing written
--   {'MISS'} reopen   {'OWNER'}   {'DELETED'}
--   {'CONFLICT', entry id}   same id, other content; nothing written
--   {'CHECK'}   an entry id may be in the stream or in MySQL though not in `ids`: ask, then call with ARGV 8 = '1'
--   {'LATE', place of an entry id in ARGV, ...}   their receipts say `queued`, and they should be in MySQL by now: look for
--            them, and say '3' or '4' of each
--   {'LEASE', ceiling, the Redis it was leased to}   not enough leased numbers left
-- A repeated entry keeps its first receipt; the new ones of the batch are numbered next to each other.
-- `ids` holds given ids only: what was made for this call cannot be a repeat, is neither looked for nor kept there.
--@include admit
local call = redis.call
local c, now = admit(KEYS[1], ARGV[1], ARGV[2], ARGV[4])
if not c then return now end
-- A window or receipts that are gone while ctx is there: somebody deleted a key. The state is made again, for to go on
-- would show a conversation of one message and number a repeat as new.
local function again()
  call('HDEL', KEYS[1], 'server')
  return {'MISS'}
end
-- LLEN, for a key of another type must fail before anything is written.
if call('LLEN', KEYS[2]) == 0 and c.first then return again() end

-- Role and link (links.py) of an item of the window.
local function role_of(item)
  local role, rest = string.match(item, '^{"id":"[^"]*","role":"(%a+)",()')
  local link = role and string.match(item, '^"link":"([^"]*)"', rest)
  return role, link
end

-- Where the window begins, counted from 0, so that no result in it is without its call: at `from` at the latest.
local function begin_whole(items, from)
  local roles, links = {}, {}
  for i = 1, #items do roles[i], links[i] = role_of(items[i]) end
  local function call_of(i)
    if links[i] then
      for j = i - 1, 1, -1 do
        if roles[j] == 'assistant' and links[j] and string.find(links[j], links[i], 1, true) then return j end
      end
    end
    local j = i - 1
    while j >= 1 and roles[j] == 'tool' do j = j - 1 end
    if j >= 1 and roles[j] == 'assistant' and not (links[i] and links[j]) then return j end
  end
  local first, i = from + 1, #items
  while i >= first do
    local answered = roles[i] == 'tool' and call_of(i)
    if answered and answered < first then first = answered end
    i = i - 1
  end
  return first - 1
end

-- Keeps the newest `size` of the window's items, and what precedes them up to a tool call whose results would be left
-- without it. No more than 200 are kept for that. Only what goes can be such a call.
local function trim(key, length, size)
  local from = length - size
  local going = call('LRANGE', key, 0, from)
  local doubt = role_of(going[from + 1]) == 'tool'
  for i = 1, from do
    local _, link = role_of(going[i])
    doubt = doubt or link ~= nil
  end
  if doubt then from = math.max(begin_whole(call('LRANGE', key, 0, -1), from), length - 200) end
  if from > 0 then call('LTRIM', key, from, -1) end
end

-- 1. What is new, what is a repeat, what clashes
local given, at_of = {}, {}
for i = 11, #ARGV, 5 do
  if ARGV[i + 1] ~= '0' then
    given[#given + 1] = ARGV[i]
    at_of[#given] = i
  end
end
local plan, mine, fresh, unsure = {}, {}, (#ARGV - 10) / 5, false
local late, lost = {}, {}
if #given > 0 then
  local known = call('HMGET', KEYS[3], unpack(given))
  if c.given and not known[1] and call('EXISTS', KEYS[3]) == 0 then return again() end
  for n = 1, #given do
    local i, id = at_of[n], given[n]
    local digest = ARGV[i + 2]
    if known[n] then
      local seq, when, state, was = string.match(known[n], '^(%d+):(%d+):(%a):(.+)$')
      if not seq then return again() end
      if was ~= digest then return {'CONFLICT', id} end
      plan[i] = {seq, when, '=' .. state}
      fresh = fresh - 1
      if state == 'q' then
        local told = ARGV[i + 1]
        if told == '3' then lost[#lost + 1] = i
        -- What is queued is in MySQL within 5 s; a repeat that comes sooner is answered as it is.
        elseif told ~= '4' and now - when > 10000000 then late[#late + 1] = i end
      end
    elseif mine[id] then
      if ARGV[mine[id] + 2] ~= digest then return {'CONFLICT', id} end
      plan[i] = mine[id]
      fresh = fresh - 1
    else
      mine[id] = i
      unsure = unsure or not c.whole or ARGV[i + 1] == '2'
    end
  end
end
if unsure and ARGV[8] ~= '1' then return {'CHECK'} end
if #late > 0 then return {'LATE', unpack(late)} end
local backlog = call('XLEN', KEYS[4])
if fresh > 0 and backlog >= tonumber(ARGV[9]) then return {'FULL', backlog} end
if fresh > 0 and c.seq + fresh > c.ceiling then
  return {'LEASE', string.format('%.0f', c.ceiling), call('HGET', KEYS[1], 'epoch') .. '.' .. ARGV[1]}
end

-- 2. Write. HSET comes first: a full server refuses it, and then nothing at all has been written.
local flat, head = {}, ''
if fresh > 0 then
  if c.head then
    head = c.head
  elseif c.first then
    head = string.match(call('LINDEX', KEYS[2], -1) or '', '^{"id":"([%w_.-]+)"') or ''
  end
  local last, receipts, items, whole = c.seq, {}, {}, {}
  local end_of_tail = ',"at":' .. now .. '}'
  local end_of_item = ',"at":' .. string.format('%.0f', now - ARGV[10]) .. '}'
  for i = 11, #ARGV, 5 do
    if not plan[i] then
      last = last + 1
      local seq = string.format('%.0f', last)
      local numbered = ',"seq":' .. seq
      plan[i] = {seq, now}
      whole[i] = ARGV[i + 3] .. numbered .. end_of_tail
      local shown = ARGV[i + 4] == '' and ARGV[i + 3] or ARGV[i + 4]
      -- `{"entry_id":"` is 13 characters.
      items[#items + 1] = '{"id":"' .. string.sub(shown, 14) .. numbered .. end_of_item
      if ARGV[i + 1] ~= '0' then
        receipts[#receipts + 1] = ARGV[i]
        receipts[#receipts + 1] = seq .. ':' .. now .. ':q:' .. ARGV[i + 2]
      end
      if not c.first then c.first = seq end
    end
  end
  call('HSET', KEYS[1], 'seq', string.format('%.0f', last), 'first', c.first)
  if c.head then call('HDEL', KEYS[1], 'head') end
  if #receipts > 0 then
    call('HSET', KEYS[3], unpack(receipts))
    if not c.given then call('HSET', KEYS[1], 'given', '1') end
    -- New keys get their time to live at once; for old ones see renew.
    if call('TTL', KEYS[3]) == -1 then call('EXPIRE', KEYS[3], ARGV[3]) end
  end
  local length = call('RPUSH', KEYS[2], unpack(items))
  if length == #items then call('EXPIRE', KEYS[2], ARGV[3]) end
  if length > tonumber(ARGV[5]) then trim(KEYS[2], length, tonumber(ARGV[5])) end
  local parent = head
  for i = 11, #ARGV, 5 do
    if whole[i] then
      plan[i][3] = call('XADD', KEYS[4], '*', 'k', ARGV[6], 'g', ARGV[i + 2], 'x', ARGV[7], 'm', whole[i], 'p', parent)
      parent = ARGV[i]
    end
  end
end
-- Its number and time are the receipt's; what it followed is no longer known.
for _, i in ipairs(lost) do
  local tail = ',"seq":' .. plan[i][1] .. ',"at":' .. plan[i][2] .. '}'
  call('XADD', KEYS[4], '*', 'k', ARGV[6], 'g', ARGV[i + 2], 'x', ARGV[7], 'm', ARGV[i + 3] .. tail, 'p', '')
end
renew(KEYS, ARGV[3])

-- 3. Answer
for i = 11, #ARGV, 5 do
  local p = plan[i]
  if type(p) == 'number' then p = plan[p] end
  flat[#flat + 1], flat[#flat + 2], flat[#flat + 3] = p[1], p[2], p[3]
end
return {'OK', now, c.first or '', flat, backlog + fresh, head}
