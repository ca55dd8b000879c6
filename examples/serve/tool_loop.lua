-- SPDX-License-Identifier: MIT
-- Tools the server runs by itself: the model calls add(a, b), the client only
-- sees the final answer.
mtx.tool("add", {
  description = "Adds two numbers",
  parameters = { type = "object", properties = { a = { type = "number" }, b = { type = "number" } }, required = { "a", "b" } },
}, function(args)
  return { sum = args.a + args.b }
end)
