-- Decodes PMI-1, PMI-1.2 and PMI-2 in Wireshark and tshark. `pmi-conform explain wireshark` writes this file from the protocol table.
-- Copy it to the folder "Personal Lua Plugins" (Help > About > Folders), or pass it to tshark: -X lua_script:pmi.lua
--
-- `pmi-conform report LOG --format pcapng -o FILE` writes captures. In a capture of PMI_PORT, connections are recognized by their first
-- message; for others, use "Decode As".

local PORT = 1313

-- For each framing (1: lines, 2: frames), the messages by the value of their `cmd`: the operation, whether it is a request, the document
-- that defines it, and the fields as KEY=NAME:FLAGS. The flags are s for a value with spaces, n for a key that ends in a number, and 2 for
-- a field of PMI-1.2.
local MESSAGES = {
  {
    ["init"] = { "init", true, "RFC 13, init", "pmi_version=pmi_version: pmi_subversion=pmi_subversion:" },
    ["response_to_init"] = { "init", false, "RFC 13, init", "pmi_version=pmi_version: pmi_subversion=pmi_subversion: rc=rc: msg=msg:s info=info:s found=found:s reason=reason:s" },
    ["get_maxes"] = { "maxes", true, "RFC 13, maxes", "" },
    ["maxes"] = { "maxes", false, "RFC 13, maxes", "kvsname_max=kvsname_max: keylen_max=keylen_max: vallen_max=vallen_max: rc=rc: msg=msg:s info=info:s found=found:s reason=reason:s" },
    ["abort"] = { "abort", true, "RFC 13, abort; exitcode: MPICH", "exitcode=exitcode:" },
    ["finalize"] = { "finalize", true, "RFC 13, finalize", "" },
    ["finalize_ack"] = { "finalize", false, "RFC 13, finalize", "rc=rc: msg=msg:s info=info:s found=found:s reason=reason:s" },
    ["get_universe_size"] = { "universe", true, "RFC 13, universe", "" },
    ["universe_size"] = { "universe", false, "RFC 13, universe", "size=size: rc=rc: msg=msg:s info=info:s found=found:s reason=reason:s" },
    ["get_appnum"] = { "appnum", true, "RFC 13, appnum", "" },
    ["appnum"] = { "appnum", false, "RFC 13, appnum", "appnum=appnum: rc=rc: msg=msg:s info=info:s found=found:s reason=reason:s" },
    ["put"] = { "put", true, "RFC 13, put", "kvsname=kvsname: key=key: value=value:s" },
    ["put_result"] = { "put", false, "RFC 13, put", "rc=rc: msg=msg:s info=info:s found=found:s reason=reason:s" },
    ["get_my_kvsname"] = { "kvsname", true, "RFC 13, kvsname", "" },
    ["my_kvsname"] = { "kvsname", false, "RFC 13, kvsname", "kvsname=kvsname: rc=rc: msg=msg:s info=info:s found=found:s reason=reason:s" },
    ["barrier_in"] = { "barrier", true, "RFC 13, barrier; group and tag: PMI-1.2 of MPICH", "group=group:s2" },
    ["barrier_out"] = { "barrier", false, "RFC 13, barrier; group and tag: PMI-1.2 of MPICH", "tag=tag:s2 rc=rc: msg=msg:s info=info:s found=found:s reason=reason:s" },
    ["get"] = { "get", true, "RFC 13, get", "kvsname=kvsname: key=key:" },
    ["get_result"] = { "get", false, "RFC 13, get", "value=value:s rc=rc: msg=msg:s info=info:s found=found:s reason=reason:s" },
    ["publish_name"] = { "publish", true, "RFC 13, publish", "service=service: port=port:" },
    ["publish_result"] = { "publish", false, "RFC 13, publish", "rc=rc: msg=msg:s info=info:s found=found:s reason=reason:s" },
    ["unpublish_name"] = { "unpublish", true, "RFC 13, unpublish", "service=service:" },
    ["unpublish_result"] = { "unpublish", false, "RFC 13, unpublish", "rc=rc: msg=msg:s info=info:s found=found:s reason=reason:s" },
    ["lookup_name"] = { "lookup", true, "RFC 13, lookup", "service=service:" },
    ["lookup_result"] = { "lookup", false, "RFC 13, lookup", "port=port: rc=rc: msg=msg:s info=info:s found=found:s reason=reason:s" },
    ["spawn"] = { "spawn", true, "RFC 13, spawn", "nprocs=nprocs: execname=execname:s totspawns=totspawns: spawnssofar=spawnssofar: arg=arg:sn argcnt=argcnt: preput_num=preput_num: preput_key_=preput_key_:n preput_val_=preput_val_:sn info_num=info_num: info_key_=info_key_:sn info_val_=info_val_:sn" },
    ["spawn_result"] = { "spawn", false, "RFC 13, spawn", "errcodes=errcodes: rc=rc: msg=msg:s info=info:s found=found:s reason=reason:s" },
    ["create_kvs"] = { "kvs-create", true, "MPICH's gforker", "" },
    ["newkvs"] = { "kvs-create", false, "MPICH's gforker", "kvsname=kvsname: rc=rc: msg=msg:s info=info:s found=found:s reason=reason:s" },
    ["destroy_kvs"] = { "kvs-destroy", true, "MPICH's gforker", "kvsname=kvsname:" },
    ["kvs_destroyed"] = { "kvs-destroy", false, "MPICH's gforker", "rc=rc: msg=msg:s info=info:s found=found:s reason=reason:s" },
    ["getbyidx"] = { "kvs-index", true, "MPICH's gforker", "kvsname=kvsname: idx=idx:" },
    ["getbyidx_results"] = { "kvs-index", false, "MPICH's gforker", "nextidx=nextidx: key=key: val=val:s rc=rc: msg=msg:s info=info:s found=found:s reason=reason:s" },
    ["get_ranks2hosts"] = { "hosts", true, "clients of MPD", "" },
    ["execution_problem"] = { "problem", true, "clients of MPD", "" },
    ["tv_ready"] = { "debugger", true, "clients of MPD", "" },
  },
  {
    ["fullinit"] = { "init", true, "PMI-2 draft, initialization", "pmijobid=pmijobid:s pmirank=pmirank: threaded=threaded: authtype=authtype: authinfo=authinfo:s thrid=thrid:s" },
    ["fullinit-response"] = { "init", false, "PMI-2 draft, initialization", "pmi-version=pmi-version: pmi-subversion=pmi-subversion: rank=rank: size=size: appnum=appnum: spawner-jobid=spawner-jobid:s debugged=debugged: pmiverbose=pmiverbose: thrid=thrid:s rc=rc: errmsg=errmsg:s" },
    ["auth-response"] = { "authenticate", true, "PMI-2 draft, authentication", "authinfo=authinfo:s thrid=thrid:s" },
    ["auth-response-complete"] = { "authenticate", true, "PMI-2 draft, authentication", "authinfo=authinfo:s thrid=thrid:s" },
    ["finalize"] = { "finalize", true, "PMI-2 draft, finalize", "thrid=thrid:s" },
    ["finalize-response"] = { "finalize", false, "PMI-2 draft, finalize", "thrid=thrid:s rc=rc: errmsg=errmsg:s" },
    ["abort"] = { "abort", true, "PMI-2 draft, abort; exitcode and message: MPICH 4.1", "isworld=isworld: msg=msg:s exitcode=exitcode: message=message:s thrid=thrid:s" },
    ["job-getid"] = { "kvsname", true, "PMI-2 draft, job-getid", "thrid=thrid:s" },
    ["job-getid-response"] = { "kvsname", false, "PMI-2 draft, job-getid", "jobid=kvsname:s thrid=thrid:s rc=rc: errmsg=errmsg:s" },
    ["job-connect"] = { "connect", true, "PMI-2 draft, job-connect", "jobid=jobid:s thrid=thrid:s" },
    ["job-connect-response"] = { "connect", false, "PMI-2 draft, job-connect", "kvscopy=kvscopy: thrid=thrid:s rc=rc: errmsg=errmsg:s" },
    ["job-disconnect"] = { "disconnect", true, "PMI-2 draft, job-disconnect", "jobid=jobid:s thrid=thrid:s" },
    ["job-disconnect-response"] = { "disconnect", false, "PMI-2 draft, job-disconnect", "thrid=thrid:s rc=rc: errmsg=errmsg:s" },
    ["kvs-getall"] = { "get-all", true, "PMI-2 draft, kvs-getall", "jobid=jobid:s thrid=thrid:s" },
    ["kvs-getall-response"] = { "get-all", false, "PMI-2 draft, kvs-getall", "thrid=thrid:s rc=rc: errmsg=errmsg:s" },
    ["kvs-putall"] = { "put-all", true, "PMI-2 draft, kvs-putall", "jobid=jobid:s npair=npair: thrid=thrid:s" },
    ["kvs-putall-response"] = { "put-all", false, "PMI-2 draft, kvs-putall", "thrid=thrid:s rc=rc: errmsg=errmsg:s" },
    ["kvs-putall-pair"] = { "put-all", true, "PMI-2 draft, kvs-putall", "key=key: val=val:s thrid=thrid:s" },
    ["kvs-put"] = { "put", true, "PMI-2 draft, kvs-put", "key=key: value=value:s thrid=thrid:s" },
    ["kvs-put-response"] = { "put", false, "PMI-2 draft, kvs-put", "thrid=thrid:s rc=rc: errmsg=errmsg:s" },
    ["kvs-get"] = { "get", true, "PMI-2 draft, kvs-get", "jobid=jobid:s srcid=srcid: key=key: thrid=thrid:s" },
    ["kvs-get-response"] = { "get", false, "PMI-2 draft, kvs-get", "flag=flag: found=found: value=value:s thrid=thrid:s rc=rc: errmsg=errmsg:s" },
    ["kvs-fence"] = { "barrier", true, "PMI-2 draft, kvs-fence", "thrid=thrid:s" },
    ["kvs-fence-response"] = { "barrier", false, "PMI-2 draft, kvs-fence", "thrid=thrid:s rc=rc: errmsg=errmsg:s" },
    ["info-putnodeattr"] = { "put-node-attribute", true, "PMI-2 draft, info-putnodeattr", "key=key: value=value:s thrid=thrid:s" },
    ["info-putnodeattr-response"] = { "put-node-attribute", false, "PMI-2 draft, info-putnodeattr", "thrid=thrid:s rc=rc: errmsg=errmsg:s" },
    ["info-getnodeattr"] = { "get-node-attribute", true, "PMI-2 draft, info-getnodeattr", "key=key: wait=wait: thrid=thrid:s" },
    ["info-getnodeattr-response"] = { "get-node-attribute", false, "PMI-2 draft, info-getnodeattr", "flag=flag: found=found: value=value:s thrid=thrid:s rc=rc: errmsg=errmsg:s" },
    ["info-getjobattr"] = { "get-job-attribute", true, "PMI-2 draft, info-getjobattr", "key=key: thrid=thrid:s" },
    ["info-getjobattr-response"] = { "get-job-attribute", false, "PMI-2 draft, info-getjobattr", "flag=flag: found=found: value=value:s thrid=thrid:s rc=rc: errmsg=errmsg:s" },
    ["name-publish"] = { "publish", true, "PMI-2 draft, name-publish", "name=service:s port=port:s infokeycount=infokeycount: infokey=infokey:n infoval=infoval:sn thrid=thrid:s" },
    ["name-publish-response"] = { "publish", false, "PMI-2 draft, name-publish", "thrid=thrid:s rc=rc: errmsg=errmsg:s" },
    ["name-lookup"] = { "lookup", true, "PMI-2 draft, name-lookup; port: Hydra", "name=service:s infokeycount=infokeycount: infokey=infokey:n infoval=infoval:sn thrid=thrid:s" },
    ["name-lookup-response"] = { "lookup", false, "PMI-2 draft, name-lookup; port: Hydra", "flag=flag: found=found: value=port:s port=port:s thrid=thrid:s rc=rc: errmsg=errmsg:s" },
    ["name-unpublish"] = { "unpublish", true, "PMI-2 draft, name-unpublish", "name=service:s infokeycount=infokeycount: infokey=infokey:n infoval=infoval:sn thrid=thrid:s" },
    ["name-unpublish-response"] = { "unpublish", false, "PMI-2 draft, name-unpublish", "thrid=thrid:s rc=rc: errmsg=errmsg:s" },
    ["spawn"] = { "spawn", true, "PMI-2 draft, spawn", "ncmds=totspawns: preputcount=preput_num: ppkey=preput_key_:n ppval=preput_val_:sn subcmd=execname:s maxprocs=nprocs: argc=argcnt: argv=arg:sn infokeycount=info_num: infokey=info_key_:n infoval=info_val_:sn thrid=thrid:s" },
    ["spawn-response"] = { "spawn", false, "PMI-2 draft, spawn", "jobid=jobid:s nerrs=nerrs: err=err:n thrid=thrid:s rc=rc: errmsg=errmsg:s" },
    ["spawn-cmd"] = { "spawn", true, "PMI-2 draft, spawn-cmd", "maxprocs=maxprocs: argc=argc: argv=argv:sn infokeycount=infokeycount: infokey=infokey:n infoval=infoval:sn thrid=thrid:s" },
    ["concat"] = { "continue", true, "PMI-2 draft, concat", "concatid=concatid:s thrid=thrid:s" },
    ["ring"] = { "ring", true, "Slurm", "count=count: left=left:s right=right:s thrid=thrid:s" },
    ["ring-response"] = { "ring", false, "Slurm", "ring-count=ring-count: ring-left=ring-left:s ring-right=ring-right:s thrid=thrid:s rc=rc: errmsg=errmsg:s" },
    ["auth-response"] = { "auth-response", false, "PMI-2 draft", "authinfo=authinfo:s" },
    ["auth-response-complete"] = { "auth-response-complete", false, "PMI-2 draft", "authinfo=authinfo:s" },
    ["kvs-getall-paircount-response"] = { "kvs-getall-paircount-response", false, "PMI-2 draft", "npair=npair:" },
    ["kvs-getall-pair-response"] = { "kvs-getall-pair-response", false, "PMI-2 draft", "key=key: val=val:s" },
  },
}

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
