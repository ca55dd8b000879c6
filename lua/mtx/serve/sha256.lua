-- SPDX-License-Identifier: MIT
-- SHA-256 (FIPS 180-4), for API keys and blobs. Plain Lua: a key is one block,
-- and the function must work without the C core.
local sha256 = {}

local K = {}
local H0 = {}
do -- the first 32 bits of the fractional parts of cube (K) and square (H0) roots of primes
  local n, count = 2, 0
  while count < 64 do
    local prime = true
    for d = 2, math.floor(math.sqrt(n)) do
      if n % d == 0 then prime = false break end
    end
    if prime then
      count = count + 1
      -- A double holds 53 bits of the root, of which at most 3 lie before the point: 32 are exact.
      K[count] = math.floor((n ^ (1 / 3) % 1) * 2 ^ 32)
      if count <= 8 then H0[count] = math.floor((n ^ 0.5 % 1) * 2 ^ 32) end
    end
    n = n + 1
  end
end

local function block(h, s, pos)
  local w = table.pack(string.unpack(">I4I4I4I4I4I4I4I4I4I4I4I4I4I4I4I4", s, pos))
  for i = 17, 64 do
    local x, y = w[i - 15], w[i - 2]
    x, y = x | x << 32, y | y << 32
    w[i] = (w[i - 16] + ((x >> 7 ~ x >> 18 ~ (x & 0xffffffff) >> 3) & 0xffffffff) + w[i - 7]
      + ((y >> 17 ~ y >> 19 ~ (y & 0xffffffff) >> 10) & 0xffffffff)) & 0xffffffff
  end
  local a, b, c, d, e, f, g, k = table.unpack(h, 1, 8)
  for i = 1, 64 do
    local ee, aa = e | e << 32, a | a << 32
    local t1 = k + ((ee >> 6 ~ ee >> 11 ~ ee >> 25) & 0xffffffff) + (e & f ~ (~e & g)) + K[i] + w[i]
    local t2 = ((aa >> 2 ~ aa >> 13 ~ aa >> 22) & 0xffffffff) + (a & b ~ a & c ~ b & c)
    k, g, f, e = g, f, e, (d + t1) & 0xffffffff
    d, c, b, a = c, b, a, (t1 + t2) & 0xffffffff
  end
  h[1], h[2], h[3], h[4] = (h[1] + a) & 0xffffffff, (h[2] + b) & 0xffffffff, (h[3] + c) & 0xffffffff, (h[4] + d) & 0xffffffff
  h[5], h[6], h[7], h[8] = (h[5] + e) & 0xffffffff, (h[6] + f) & 0xffffffff, (h[7] + g) & 0xffffffff, (h[8] + k) & 0xffffffff
end

local Sum = {}
Sum.__index = Sum

function sha256.new() return setmetatable({ h = { table.unpack(H0) }, rest = "", n = 0 }, Sum) end

function Sum:update(s)
  self.n = self.n + #s
  s = self.rest .. s
  local last = #s - #s % 64
  for pos = 1, last, 64 do block(self.h, s, pos) end
  self.rest = s:sub(last + 1)
end

function Sum:hex()
  local s = self.rest .. "\128"
  s = s .. ("\0"):rep((56 - #s) % 64) .. string.pack(">I8", self.n * 8)
  for pos = 1, #s, 64 do block(self.h, s, pos) end
  return (string.format(("%08x"):rep(8), table.unpack(self.h, 1, 8)))
end

-- bytes -> 64 lower-case hex digits.
function sha256.hex(s)
  local sum = sha256.new()
  sum:update(s)
  return sum:hex()
end

return sha256
