-- A POST of messages with one newline between them: wrk ... -s post.lua URL -- SIZE COUNT
function init(args)
  local messages = {}
  for i = 1, tonumber(args[2]) do
    messages[i] = string.rep("x", tonumber(args[1]))
  end
  wrk.method = "POST"
  wrk.body = table.concat(messages, "\n")
end
