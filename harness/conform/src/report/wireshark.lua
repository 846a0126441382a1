-- Decodes PMI-1, PMI-1.2 and PMI-2 in Wireshark and tshark. `pmi-conform explain wireshark` writes this file from the protocol table.
-- Copy it to the folder "Personal Lua Plugins" (Help > About > Folders), or pass it to tshark: -X lua_script:pmi.lua
--
-- `pmi-conform report LOG --format pcapng -o FILE` writes captures. In a capture of PMI_PORT, connections are recognized by their first
-- message; for others, use "Decode As".

local PORT = @PORT@

-- For each framing (1: lines, 2: frames), the messages by the value of their `cmd`: the operation, whether it is a request, the document
-- that defines it, and the fields as KEY=NAME:FLAGS. The flags are s for a value with blanks, n for a key that ends in a number, and 2 for
-- a field of PMI-1.2.
local MESSAGES = {
@MESSAGES@}

local pmi = Proto("pmi", "Process Management Interface")
local common = {
  command = ProtoField.string("pmi.cmd", "Command"),
  operation = ProtoField.string("pmi.operation", "Operation"),
  direction = ProtoField.string("pmi.direction", "Direction"),
  source = ProtoField.string("pmi.source", "Defined in"),
  length = ProtoField.string("pmi.length", "Length of the frame"),
  unknown = ProtoField.string("pmi.unknown", "Not in the table"),
}
local fields, all = {}, {}
for _, field in pairs(common) do all[#all + 1] = field end
for _, messages in ipairs(MESSAGES) do
  for command, row in pairs(messages) do
    local message = { operation = row[1], request = row[2], source = row[3], fields = {} }
    for key, name, flags in row[4]:gmatch("([^ =]+)=([^ :]+):(%w*)") do
      message.fields[key] = { name = name, flags = flags }
      if not fields[name] then
        local filter = name:gsub("[^%w]+$", ""):gsub("[^%w]", "_")
        fields[name] = ProtoField.string("pmi." .. filter, name)
        all[#all + 1] = fields[name]
      end
    end
    messages[command] = message
  end
end
pmi.fields = all

-- Returns the field of a key. Numbered keys are in the table without their number.
local function field_of(message, key)
  if not message then return nil end
  local field = message.fields[key]
  if field and not field.flags:find("n") then return field end
  local stem = key:match("^(.-)%d+$")
  field = stem and message.fields[stem]
  return field and field.flags:find("n") and field or nil
end

-- Returns the position after the value that starts at `from`, and the position of the next tuple.
local function value_end(text, from, framing, message, key)
  if framing == 2 then
    local at = from
    while at <= #text do
      if text:sub(at, at + 1) == ";;" then at = at + 2
      elseif text:sub(at, at) == ";" then return at, at + 1
      else at = at + 1 end
    end
    return at, at
  end
  if text:find("^mcmd=") then
    local at = text:find("\n", from, true) or #text + 1
    return at, at + 1
  end
  local field = field_of(message, key)
  local at = from
  while true do
    at = text:find(" ", at, true)
    if not at then return #text + 1, #text + 1 end
    local next_key = text:match("^ +([^ =]+)=", at)
    if not (field and field.flags:find("s")) or (next_key and field_of(message, next_key)) then
      return at, text:find("[^ ]", at) or #text + 1
    end
    at = at + 1
  end
end

-- Returns the length of the message at `offset` and its framing, or nothing if its end is missing.
local function extent(buffer, offset)
  local text = buffer:raw(offset, buffer:len() - offset)
  local head = text:sub(1, 6)
  if head:find("^[ %d]+$") then
    local length = #head == 6 and tonumber(head)
    if length and #text >= 6 + length then return 6 + length, 2 end
    return nil
  end
  if text:find("^mcmd=") then
    local _, last = text:find("\nendcmd\n", 1, true)
    return last, 1
  end
  return text:find("\n", 1, true), 1
end

local function dissect(buffer, offset, length, framing, pinfo, tree)
  local header = framing == 2 and 6 or 0
  local text = buffer:raw(offset + header, length - header)
  if framing == 1 then text = text:sub(1, -2) end
  local command = text:match("^m?cmd=([^ ;\n]*)") or text:match("^[^=]*=([^ ;\n]*)") or text
  local message = MESSAGES[framing][command]
  local protocol = framing == 2 and "PMI-2" or "PMI-1"
  local branch = tree:add(pmi, buffer(offset, length))
  if framing == 2 then branch:add(common.length, buffer(offset, 6)) end
  local direction = pinfo.dst_port == PORT and "request" or "response"
  if message then
    direction = message.request and "request" or "response"
    branch:add(common.operation, message.operation):set_generated()
    branch:add(common.source, message.source):set_generated()
  end
  branch:add(common.direction, direction):set_generated()
  local at = 1
  while at <= #text do
    local key = text:match("^([^= ;\n]*)=", at)
    local from = at + (key and #key + 1 or 0)
    local stop, following = value_end(text, from, framing, message, key or "")
    local field = key and field_of(message, key)
    local value = buffer(offset + header + from - 1, stop - from)
    if key == "cmd" or key == "mcmd" then branch:add(common.command, value)
    elseif field then
      branch:add(fields[field.name], value):set_text(key .. ": " .. value:string())
      if field.flags:find("2") then protocol = "PMI-1.2" end
    elseif stop > at and text:sub(at, stop - 1) ~= "endcmd" then
      branch:add(common.unknown, buffer(offset + header + at - 1, stop - at))
    end
    at = math.max(following, at + 1)
  end
  branch:set_text(protocol .. " " .. (message and message.operation or command) .. ", " .. direction)
  return protocol, (text:gsub("\n", " "))
end

function pmi.dissector(buffer, pinfo, tree)
  local offset, protocol, info = 0, nil, {}
  while offset < buffer:len() do
    local length, framing = extent(buffer, offset)
    if not length then
      pinfo.desegment_offset = offset
      pinfo.desegment_len = DESEGMENT_ONE_MORE_SEGMENT
      break
    end
    protocol, info[#info + 1] = dissect(buffer, offset, length, framing, pinfo, tree)
    offset = offset + length
  end
  if protocol then
    pinfo.cols.protocol = protocol
    pinfo.cols.info = table.concat(info, " | ")
  end
  return buffer:len()
end

DissectorTable.get("tcp.port"):add(PORT, pmi)
pmi:register_heuristic("tcp", function(buffer, pinfo, tree)
  if buffer:len() < 8 or buffer:raw(0, 8) ~= "cmd=init" then return false end
  pinfo.conversation = pmi
  pmi.dissector(buffer, pinfo, tree)
  return true
end)
