/**
 * The scripts: one family over one hash per lock, so that every way to take a key looks at everybody who holds it or
 * waits for it, and a slot on its way to another node of a cluster still grants what it has.
 *
 * Fields of a record:
 * - `f`: the last fence of the last block that was granted;
 * - `h<token>`: a holder, as `<mode> <until> <fence> <since> <round>`, with the mode E, S, or P and a number of permits;
 * - `m<token>`: what it says of itself, as JSON;
 * - `w<waiter>`: who waits, as `<mode> <order> <arrival> <until>`, with 1 where order was asked for, 2 where several
 *   records were, and 0 elsewhere;
 * - `d<token>`: until when a deposed holder could still ask.
 *
 * Times are the server's, in milliseconds; arrival and fences in microseconds. A record's name is its channel, too.
 * Three rules:
 * - Numbers leave Lua by `f()` alone: Lua prints 14 digits, and some servers an exponent or a `.0`.
 * - A script looks at everything before it writes anything, so that an error of the server means that nothing happened.
 * - TIME is asked once: before Redis 7.2 it moves on while a script runs. What answers more than a word answers it first.
 */
import { hash } from "node:crypto"

export interface Script {
  readonly name: string
  readonly source: string
  readonly sha: string
}

/** How long a place counts after its last sign of life where no order was asked for, in milliseconds. */
export const patience = 2_000

/** Who polls has been seen within this time. */
const lately = 500

/** The message to all who read; an empty one is to everybody, and any other to the waiter of that name. */
export const readers = "readers"

/** Fences that belong to one grant. */
export const fenceBlock = 8

const prelude = `
local T=redis.call('TIME')
local us=T[1]*1000000+T[2]
local ms=math.floor(us/1000)
local function f(n) return string.format('%.0f',n) end
`

/**
 * Somebody who has not been seen for `silent` is gone and need not be woken. A sign of life further ahead than any
 * patience is one from before the clock was set back.
 */
const records = `
local silent,farAhead=120000,120000
local function read(key)
  local r={f=0,h={},w={},d={}}
  local a=redis.call('HGETALL',key)
  for i=1,#a,2 do
    local kind,id,v=string.sub(a[i],1,1),string.sub(a[i],2),a[i+1]
    if kind=='h' then
      local mode,till,fence,since,round=string.match(v,'^(%u%d*) (%d+) (%d+) (%d+) (%d+)$')
      r.h[id]={mode=mode,permits=tonumber(string.sub(mode,2)),till=tonumber(till),fence=fence,since=since,round=tonumber(round)}
    elseif kind=='w' then
      local mode,order,at,till=string.match(v,'^(%u%d*) (%d) (%d+) (%d+)$')
      r.w[id]={mode=mode,permits=tonumber(string.sub(mode,2)),fair=order=='1',order=order,at=tonumber(at),till=tonumber(till)}
    elseif kind=='d' then r.d[id]=tonumber(v)
    elseif a[i]=='f' then r.f=tonumber(v) end
  end
  return r
end
local function waits(w) return w.till>ms and w.till-ms<farAhead end
local function put(key,id,h,...)
  redis.call('HSET',key,'h'..id,h.mode..' '..f(h.till)..' '..h.fence..' '..h.since..' '..f(h.round),...)
end
local function drop(key,id) redis.call('HDEL',key,'h'..id,'m'..id) end
local function sweep(key,r)
  for id,h in pairs(r.h) do if h.till<=ms then r.h[id]=nil drop(key,id) end end
  for id,w in pairs(r.w) do if w.till+silent<=ms then r.w[id]=nil redis.call('HDEL',key,'w'..id) end end
  for id,till in pairs(r.d) do if till<=ms then r.d[id]=nil redis.call('HDEL',key,'d'..id) end end
end
-- how long the record is needed: all who are in it, then the fence for as long as it is kept
local function need(r,till,keep)
  for _,h in pairs(r.h) do till=math.max(till,h.till) end
  for _,w in pairs(r.w) do till=math.max(till,math.min(w.till,ms+farAhead)+silent) end
  return f(till-ms+keep)
end
local function seat(key,id,w)
  redis.call('HSET',key,'w'..id,w.mode..' '..w.order..' '..f(w.at)..' '..f(w.till))
end
-- gives a place, or a sign of life at the one that is there
local function enlist(key,r,waiter,mode,order,at,till,keep)
  local mine=r.w[waiter]
  r.w[waiter]={mode=mode,order=order,at=mine and mine.at or at,till=till}
  seat(key,waiter,r.w[waiter])
  local longest=need(r,ms,keep)
  if redis.call('PTTL',key)<tonumber(longest) then redis.call('PEXPIRE',key,longest) end
end
-- behind all who are there
local function arrival(rs)
  local at=us
  for _,r in ipairs(rs) do for _,w in pairs(r.w) do if w.at>=at then at=w.at+1 end end end
  return at
end
local function free(r)
  for _,h in pairs(r.h) do if h.till>ms then return false end end
  return true
end
-- Wakes the first in line, and a reader with all who read, where it asked for order, or was seen lately and wants no more
-- than this: of all who are told, the one who is told first would win each time. Else everybody. Answers whether anybody
-- is there.
local function wake(key,r)
  local first,any
  for id,w in pairs(r.w) do
    if w.till+silent>ms then any=true end
    if waits(w) and (not first or w.at<r.w[first].at) then first=id end
  end
  if any then
    local w=first and r.w[first]
    local some=w and (w.fair or not w.permits and w.order=='0' and w.till-ms>${patience - lately})
    redis.call('PUBLISH',key,some and (w.mode=='S' and '${readers}' or first) or '')
  end
  return first~=nil
end
`

const script = (name: string, ...parts: ReadonlyArray<string>): Script => {
  const source = [prelude, ...parts].join("")
  return { name, source, sha: hash("sha1", source) }
}

/**
 * Takes all records or none. A repeated attempt finds its own grant, extends it and answers the same fences. Refuses to
 * act after `notAfter`: a command that is late would grant to a caller who is gone.
 *
 * `waiter` (or '') asks for a place among those who wait. `proposal` is a fence that several servers can agree on, `limit`
 * how many permits may be out, `round` the number of a vote among those of its token. Behind it come the names of waiters
 * who are behind this one, and whose places it keeps.
 *
 * Answers `granted` with the fences, `busy` with those of them who have no place and what is known of who is in the way,
 * or `late`.
 */
export const acquire = script(
  "acquire",
  `
local mode,token,ttl,keep,holder,notAfter=ARGV[1],ARGV[2],tonumber(ARGV[3]),tonumber(ARGV[4]),ARGV[5],tonumber(ARGV[6])
local waiter,order,patience,proposal,limit=ARGV[7],ARGV[8],tonumber(ARGV[9]),tonumber(ARGV[10]),tonumber(ARGV[11])
local permits,round=tonumber(string.sub(mode,2)),tonumber(ARGV[12])
local now=f(ms)
if ms>notAfter then return {now,'late'} end
-- the clock's part lets fences rise over a record that was lost, the counter's over a clock that was set back
local function after(last)
  local n=math.max(last+1,us)
  if proposal>n and proposal<us+60000000 then n=proposal end
  return n
end
local function grant(key,n,till)
  local fence=f(n)
  redis.call('HSET',key,'f',f(n+${
    fenceBlock - 1
  }),'h'..token,mode..' '..f(till)..' '..fence..' '..now..' '..f(round),'m'..token,holder)
  return fence
end
-- a key that nobody holds or waits for is what is asked for most: half the work
if #KEYS==1 then
  local a=redis.call('HGETALL',KEYS[1])
  if #a==0 or #a==2 and a[1]=='f' then
    local fence=grant(KEYS[1],after(tonumber(a[2]) or 0),ms+ttl)
    redis.call('PEXPIRE',KEYS[1],f(ttl+keep))
    return {now,'granted',fence}
  end
end
`,
  records,
  `
local rs,refusal={},nil
for i,key in ipairs(KEYS) do
  local r=read(key)
  rs[i]=r
  local own=r.h[token]
  if own and own.till<=ms then own=nil r.h[token]=nil end
  r.own=own
  if not own and not refusal then
    local last,blocked
    r.out=permits or 0
    for id,h in pairs(r.h) do
      if h.till>ms then
        r.out=r.out+(h.permits or 0)
        if mode=='E' or h.mode=='E' then blocked=true end
        if not last or h.till>r.h[last].till then last=id end
      end
    end
    if permits and r.out>limit then blocked=true end
    local place=r.w[waiter] and r.w[waiter].at
    if not blocked then
      for id,w in pairs(r.w) do
        -- a writer stops the readers that came after it; order, once asked for, binds everybody who is in its way
        if id~=waiter and waits(w) and (not place or w.at<place) and
          (w.mode=='E' and mode=='S' or w.fair and (w.mode=='E' or mode=='E' or permits)) then blocked=true end
      end
    end
    if blocked then
      refusal={now,'busy',''}
      if last then
        local h=r.h[last]
        refusal={now,'busy','',last,h.mode,f(h.till),h.fence,h.since,redis.call('HGET',key,'m'..last) or ''}
      end
    end
  end
end
if refusal then
  if waiter~='' then
    -- those behind it, whose sign of life this is as well: who is before it has to ask, and would not
    local mine=rs[1].w[waiter]
    for i=13,#ARGV do
      local id,w=ARGV[i],rs[1].w[ARGV[i]]
      if w and mine and w.at>mine.at then
        w.till=ms+patience
        seat(KEYS[1],id,w)
      else
        refusal[3]=refusal[3]..' '..id
      end
    end
    local at=arrival(rs)
    for i,key in ipairs(KEYS) do enlist(key,rs[i],waiter,mode,order,at,ms+patience,keep) end
  end
  return refusal
end
local answer={now,'granted'}
for i,key in ipairs(KEYS) do
  local r=rs[i]
  local fence,till=nil,ms+ttl
  if r.own then
    fence,till=r.own.fence,math.max(till,r.own.till)
    r.own.till,r.own.round=till,math.max(round,r.own.round)
    put(key,token,r.own)
  else
    fence=grant(key,after(r.f),till)
  end
  if r.w[waiter] then r.w[waiter]=nil redis.call('HDEL',key,'w'..waiter) end
  if r.d[token] then r.d[token]=nil redis.call('HDEL',key,'d'..token) end
  r.h[token]={till=till}
  sweep(key,r)
  redis.call('PEXPIRE',key,need(r,till,keep))
  -- one release may have been enough for several
  if permits and not r.own and r.out<limit then wake(key,r) end
  answer[i+2]=fence
end
return answer`
)

/**
 * Extends grants whose token still holds all of its records; never takes one back. A batch: after the retention come
 * token, ttl and number of records of each grant, whose records follow one another in KEYS.
 *
 * Answers for each of them `confirmed`, `contended` (confirmed, and somebody waits), or why it is lost.
 */
export const renew = script(
  "renew",
  records,
  `
local keep,answer,at=tonumber(ARGV[1]),{f(ms)},0
for a=2,#ARGV,3 do
  local token,ttl,count=ARGV[a],tonumber(ARGV[a+1]),tonumber(ARGV[a+2])
  local rs,owned,taken,revoked,contended={},0,false,false,false
  for i=1,count do
    local r=read(KEYS[at+i])
    rs[i]=r
    local own=r.h[token]
    if own and own.till>ms then owned=owned+1 end
    for id,h in pairs(r.h) do if id~=token and h.till>ms and not h.permits then taken=true end end
    for _,w in pairs(r.w) do if waits(w) then contended=true end end
    if r.d[token] and r.d[token]>ms then revoked=true end
  end
  for i=1,count do
    local key,r=KEYS[at+i],rs[i]
    local own=r.h[token]
    if owned==count then
      own.till=ms+ttl
      -- first: it is allowed where memory is short, and what follows it in a script then is, too
      redis.call('PEXPIRE',key,need(r,own.till,keep))
      put(key,token,own)
    elseif own and own.till<=ms then
      -- who was told that it has lapsed must not get it back from a clock that is set back
      drop(key,token)
    end
  end
  at=at+count
  answer[#answer+1]=owned==count and (contended and 'contended' or 'confirmed') or revoked and 'revoked' or taken and 'taken' or 'expired'
end
return answer`
)

/** Nobody but the holder is in the record: its fence, its holder, and what that said of itself. */
const alone = `
local token=ARGV[1]
local alone=#KEYS==1 and redis.call('HLEN',KEYS[1])==3 and redis.call('HGET',KEYS[1],'h'..token)
`

const giveUp = `
local owned,lapsed,woke=0,false,false
local newest=tonumber(ARGV[2])
for _,key in ipairs(KEYS) do
  local r=read(key)
  local own,place=r.h[token],r.w[token]
  if own and newest and own.round>newest then own=nil
  else redis.call('HDEL',key,'h'..token,'m'..token,'d'..token) end
  if place and ARGV[2]=='leave' then redis.call('HDEL',key,'w'..token) r.w[token]=nil else place=nil end
  if (own or place) and wake(key,r) then woke=true end
  if own then
    owned=owned+1
    if own.till<=ms then lapsed=true end
  end
end
return owned<#KEYS and 'gone' or lapsed and 'lapsed' or woke and 'woke' or 'released'`

/**
 * Gives up whatever the token owns, and its place where ARGV[2] is `leave`. Elsewhere that is `keep` or the number of a
 * round: what a later one was granted stays, however late this comes. Answers `gone`, `lapsed`, `woke` or `released`.
 */
export const release = script(
  "release",
  alone,
  `
if alone and not tonumber(ARGV[2]) then
  redis.call('HDEL',KEYS[1],'h'..token,'m'..token)
  return tonumber(string.match(alone,'^%u%d* (%d+)'))<=ms and 'lapsed' or 'released'
end
`,
  records,
  giveUp
)

/**
 * Leaves a record that nobody waits for to its writer, under a new block of fences: answers the first one, or as
 * `release` does. The fence of ARGV[3] is the one that it has; what has another by now was here before.
 */
export const offer = script(
  "offer",
  alone,
  `
local key,ttl,keep=KEYS[1],tonumber(ARGV[4]),tonumber(ARGV[5])
local function again(own,last,longest)
  local mode,till,fence,round=string.match(own,'^(%u%d*) (%d+) (%d+) %d+ (%d+)')
  if tonumber(till)<=ms then return end
  if fence~=ARGV[3] then return {fence} end
  fence=f(math.max(last+1,us))
  redis.call('HSET',key,'f',f(tonumber(fence)+${
    fenceBlock - 1
  }),'h'..token,mode..' '..f(ms+ttl)..' '..fence..' '..f(ms)..' '..round)
  redis.call('PEXPIRE',key,longest)
  return {fence}
end
local kept=alone and again(alone,tonumber(redis.call('HGET',key,'f')) or 0,f(ttl+keep))
if kept then return kept end
`,
  records,
  `
local r=read(key)
local wanted=false
for _,w in pairs(r.w) do if waits(w) then wanted=true end end
local own=r.h[token]
if own and (not wanted or own.fence~=ARGV[3]) then
  own.till=math.max(own.till,ms+ttl)
  local kept=again(redis.call('HGET',key,'h'..token),r.f,need(r,own.till,keep))
  if kept then return kept end
end
`,
  giveUp
)

/** A place without an attempt, or a sign of life. Answers `free` to who is the first, where nobody holds the records. */
export const enlist = script(
  "enlist",
  records,
  `
local waiter,mode,order,patience,keep=ARGV[1],ARGV[2],ARGV[3],tonumber(ARGV[4]),tonumber(ARGV[5])
local rs,answer={},'free'
for i,key in ipairs(KEYS) do rs[i]=read(key) end
local at=arrival(rs)
for i,key in ipairs(KEYS) do
  local r=rs[i]
  local mine=r.w[waiter] and r.w[waiter].at or at
  if not free(r) then answer='busy' end
  for _,w in pairs(r.w) do if waits(w) and w.at<mine then answer='busy' end end
end
for i,key in ipairs(KEYS) do enlist(key,rs[i],waiter,mode,order,at,ms+patience,keep) end
return answer`
)

/** Gives up a place, and wakes those who were behind it. */
export const withdraw = script(
  "withdraw",
  records,
  `
for _,key in ipairs(KEYS) do
  local r=read(key)
  local mine=r.w[ARGV[1]]
  if mine then
    redis.call('HDEL',key,'w'..ARGV[1])
    r.w[ARGV[1]]=nil
    if mine.mode=='E' or mine.fair or free(r) then wake(key,r) end
  end
end
return 'OK'`
)

const holders = `
local function tell(key,r)
  local answer={f(ms)}
  for id,h in pairs(r.h) do
    if h.till>ms then
      for _,v in ipairs({id,h.mode,f(h.till),h.fence,h.since,redis.call('HGET',key,'m'..id) or ''}) do answer[#answer+1]=v end
    end
  end
  return answer
end
`

/** Who holds a record now: six values for each. */
export const inspect = script("inspect", records, holders, `return tell(KEYS[1],read(KEYS[1]))`)

/** Takes a record from its holders, tells them on the channel ARGV[1], and answers who they were. */
export const depose = script(
  "depose",
  records,
  holders,
  `
local key=KEYS[1]
local r=read(key)
local answer=tell(key,r)
for id,h in pairs(r.h) do
  drop(key,id)
  if h.till>ms then
    redis.call('HSET',key,'d'..id,f(h.till))
    redis.call('PUBLISH',ARGV[1],id)
  end
end
wake(key,r)
return answer`
)

/**
 * Raises the fences of a grant to what a majority of servers agreed on, while the token still holds it: whoever is
 * granted by one of these servers later gets higher ones.
 */
export const raise = script(
  "raise",
  records,
  `
local token=ARGV[1]
local rs={}
for i,key in ipairs(KEYS) do
  local r=read(key)
  local own=r.h[token]
  if not own or own.till<=ms then return {f(ms),'lost'} end
  rs[i]=r
end
for i,key in ipairs(KEYS) do
  local r,fence=rs[i],ARGV[i+1]
  local own,n=r.h[token],tonumber(fence)
  if n>tonumber(own.fence) then
    own.fence=fence
    put(key,token,own,'f',f(math.max(r.f,n+${fenceBlock - 1})))
  end
end
return {f(ms),'raised'}`
)

/** The server's time. */
export const time = script("time", `return f(ms)`)
